"""Findings as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code review tools show in place.

Level, rule and line are SARIF's own; the place in the program (gpu, threadblock, step) is a logical location.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from latecomer import __version__
from latecomer.codegen.findings import RULES, Finding

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One SARIF log with one run; its rules are those that something was found of, by code. O(findings)."""
    codes = sorted({finding.code for finding in findings})
    rules = [
        {"id": code, "shortDescription": {"text": RULES[code].title}, "fullDescription": {"text": RULES[code].outcome}}
        for code in codes
    ]
    driver = {"name": "latecomer", "version": __version__, "rules": rules}
    results = [_result(finding, codes.index(finding.code)) for finding in findings]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": quote(finding.source)}}}
    if finding.line:
        location["physicalLocation"]["region"] = {"startLine": finding.line}
    place = [f"{name} {at}" for name, at in finding.place()]
    if place:
        location["logicalLocations"] = [{"fullyQualifiedName": "/".join(place)}]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": f"{finding.message}. At run time: {finding.outcome}"},
        "locations": [location],
    }
