"""What a test of the cluster runs beside itself: files to sum, where, and the sums as text.

python tests/scale/run.py ADDRESS FILE...    a line for each partition that is done, then the aggregate
"""

import sys
from pathlib import Path

from noisette.aggregation import split_files
from noisette.scale import aggregate_on_ray


def main(address: str, *paths: str) -> None:
    reports = split_files(map(Path, paths), values=1)  # a partition for each row group
    sums = aggregate_on_ray(reports, address=address, on_progress=lambda users: print(users, flush=True))
    print(sums.to_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
