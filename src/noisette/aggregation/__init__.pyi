"""Every public name of `noisette.aggregation`, once."""

from .files import ReportFile as ReportFile
from .files import aggregate_files as aggregate_files
from .files import write_reports as write_reports
from .partitions import Partition as Partition
from .partitions import Partitioned as Partitioned
from .partitions import aggregate_partitions as aggregate_partitions
from .partitions import split_files as split_files
from .streams import aggregate_stream as aggregate_stream
from .streams import load as load
from .tables import Table as Table
