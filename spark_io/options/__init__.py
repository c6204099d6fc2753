"""The options that users give to the format ``runnel``: what they are called, and what they say."""
