"""Reports to an aggregate, streaming: from memory, from report files, and from tables of raw data."""

from noisette._moved import names_of
from noisette.aggregation.files import ReportFile, aggregate_files, write_reports
from noisette.aggregation.partitions import Partition, Partitioned, aggregate_partitions, split_files
from noisette.aggregation.streams import aggregate_stream, load
from noisette.aggregation.tables import Table

__all__ = [
    "Partition",
    "Partitioned",
    "ReportFile",
    "Table",
    "aggregate_files",
    "aggregate_partitions",
    "aggregate_stream",
    "load",
    "split_files",
    "write_reports",
]

__getattr__ = names_of(__name__, "noisette.mechanisms.graded.estimation", "noisette._files")
