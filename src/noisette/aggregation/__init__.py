"""Reports to an aggregate, streaming: from memory, from report files, and from tables of raw data."""

from noisette.aggregation.files import ReportFile, aggregate_files, write_reports
from noisette.aggregation.graded import Histogram, convert_signs, hiera, maximum_likelihood
from noisette.aggregation.partitions import Partition, Partitioned, aggregate_partitions, split_files
from noisette.aggregation.streams import aggregate_stream, load
from noisette.aggregation.tables import Table
from noisette.aggregation.whole import whole_file

__all__ = [
    "Histogram",
    "Partition",
    "Partitioned",
    "ReportFile",
    "Table",
    "aggregate_files",
    "aggregate_partitions",
    "aggregate_stream",
    "convert_signs",
    "hiera",
    "load",
    "maximum_likelihood",
    "split_files",
    "whole_file",
    "write_reports",
]
