"""``runnel archive``: taking topics into their archives, and what is there."""
