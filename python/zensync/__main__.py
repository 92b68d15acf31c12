"""python -m zensync env"""

import argparse

from zensync.env import report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m zensync", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("env", help="print what a bug report needs")
    parser.parse_args()
    print(report())


if __name__ == "__main__":
    main()
