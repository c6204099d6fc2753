"""The lag of named consumers as a scrape shows it."""

from __future__ import annotations

from runnel.metrics.definitions import NAMED_CONSUMER_METRICS
from runnel.metrics.lag import lag_metrics
from runnel.positions.lag import PartitionLag

ROWS = (
    PartitionLag("billing", "orders", 0, 3, 10, 7, True, 1.5),
    PartitionLag("billing", "orders", 1, None, 4, None, True, None),
)


def test_series_of_all_that_is_known() -> None:
    families = {family.name: family for family in lag_metrics(ROWS)}
    assert list(families) == [one.name for one in NAMED_CONSUMER_METRICS]
    found = {
        name.removeprefix("runnel_named_consumer_"): {
            ",".join(sample.labels.values()): sample.value for sample in family.samples
        }
        for name, family in families.items()
    }
    assert found == {
        "lag_records": {"billing,orders,0": 7},
        "committed_offset": {"billing,orders,0": 3},
        "end_offset": {"billing,orders,0": 10, "billing,orders,1": 4},
        "commit_age_seconds": {"billing,orders,0": 1.5},
        "open": {"billing,orders": 1},
    }
