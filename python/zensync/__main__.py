"""The command line: `zensync env`, `bench` and `advise`, or `python -m zensync ...`."""

import argparse
import sys

from zensync.env import report


def main() -> int:
    if sys.argv[1:2] == ["bench"]:  # these have parsers of their own
        from zensync import bench

        return bench.main(sys.argv[2:])
    if sys.argv[1:2] == ["advise"]:
        from zensync import advise

        return advise.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="zensync")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("env", help="print what a bug report needs")
    commands.add_parser("bench", help="measure what synchronising a gradient costs; see its --help")
    commands.add_parser("advise", help="predict what every scheme would cost; see its --help")
    parser.parse_args()
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
