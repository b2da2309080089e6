"""The same aggregation on a Ray cluster: `aggregate_on_ray`, to the same bits as in one process.

It needs the packages of ``noisette[scale]``. What it sums are partitions of reports, which
`noisette.aggregation.split_files` makes of report files.
"""

from noisette.scale.cluster import aggregate_on_ray

__all__ = ["aggregate_on_ray"]
