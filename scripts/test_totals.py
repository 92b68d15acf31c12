"""Adds up JUnit files and prints "N passed, N failed, N skipped" as the last line.

python scripts/test_totals.py FOLDER FAILED_STAGES

FAILED_STAGES counts failures as the caller saw them: a stage that failed without a failed test
(lint, a build, a demo) must not leave "0 failed". The exit status is 0 only if tests ran and none
failed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

FAILED = ("failure", "error")


def outcomes(report: Path) -> Iterator[str]:
    """Yields passed, failed or skipped for each test case of a report."""
    for case in ElementTree.parse(report).iter("testcase"):
        if any(case.find(tag) is not None for tag in FAILED):
            yield "failed"
        elif case.find("skipped") is not None:
            yield "skipped"
        else:
            yield "passed"


def main(folder: Path, failed_stages: int) -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for report in sorted(folder.glob("*.xml")):
        for outcome in outcomes(report):
            counts[outcome] += 1
    counts["failed"] = max(counts["failed"], failed_stages)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
