"""How Mermaid draws in Hearth: its colours from the theme's tokens, its limits. No Qt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FONT_PX = 13  # the font of the window is wider than the one that Mermaid measures in
MOST_SOURCE = 20_000  # characters of a diagram's source
MOST_WORK = 2_000_000  # units of merman; a flowchart of 150 nodes takes 220,000

# Fills of what a diagram numbers: parts of a pie, branches, sections. (strong, soft) tokens.
_SERIES = (
    ("cold_fill", "cold_soft"), ("hot_fill", "hot_soft"), ("ok", "ok_soft"), ("away_fill", "away_soft"),
    ("warn", "warn_soft"), ("bad", "bad_soft"),
)  # fmt: skip


def options(tokens: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of merman for these colour tokens."""
    t = tokens
    variables: dict[str, Any] = {
        "darkMode": t["dark"], "background": t["sunken"], "fontFamily": "arial, sans-serif", "fontSize": f"{FONT_PX}px",
        "primaryColor": t["bubble"], "primaryTextColor": t["ink"], "primaryBorderColor": t["control"],
        "secondaryColor": t["sunken"], "secondaryTextColor": t["ink"], "secondaryBorderColor": t["edge"],
        "tertiaryColor": t["page"], "tertiaryTextColor": t["ink"], "tertiaryBorderColor": t["edge"],
        "mainBkg": t["bubble"], "nodeBorder": t["control"], "nodeTextColor": t["ink"], "lineColor": t["ink3"],
        "textColor": t["ink"], "titleColor": t["ink"], "clusterBkg": t["page"], "clusterBorder": t["edge"],
        "edgeLabelBackground": t["sunken"], "defaultLinkColor": t["ink3"], "arrowheadColor": t["ink3"],
        "noteBkgColor": t["warn_soft"], "noteTextColor": t["ink"], "noteBorderColor": t["warn"],
        "actorBkg": t["bubble"], "actorBorder": t["control"], "actorTextColor": t["ink"], "actorLineColor": t["edge"],
        "signalColor": t["ink2"], "signalTextColor": t["ink"], "labelBoxBkgColor": t["sunken"],
        "labelBoxBorderColor": t["edge"], "labelTextColor": t["ink"], "loopTextColor": t["ink"],
        "activationBkgColor": t["sunken"], "activationBorderColor": t["control"], "classText": t["ink"],
        "labelColor": t["ink"], "errorBkgColor": t["bad_soft"], "errorTextColor": t["bad"],
        "transitionColor": t["ink3"], "transitionLabelColor": t["ink"], "stateLabelColor": t["ink"],
        "stateBkg": t["bubble"], "labelBackgroundColor": t["sunken"], "compositeBackground": t["page"],
        "compositeTitleBackground": t["bubble"], "compositeBorder": t["control"], "altBackground": t["sunken"],
        "specialStateColor": t["ink2"], "innerEndBackground": t["ink2"], "relationColor": t["ink3"],
        "relationLabelColor": t["ink"], "relationLabelBackground": t["sunken"], "requirementBackground": t["bubble"],
        "requirementBorderColor": t["control"], "requirementTextColor": t["ink"],
        "attributeBackgroundColorOdd": t["card"],
        "attributeBackgroundColorEven": t["sunken"], "rowOdd": t["card"], "rowEven": t["sunken"],
        "sectionBkgColor": t["bubble"], "altSectionBkgColor": t["sunken"], "sectionBkgColor2": t["bubble"],
        "taskBorderColor": t["cold"], "taskBkgColor": t["cold_soft"], "taskTextColor": t["ink"],
        "taskTextDarkColor": t["ink"], "taskTextOutsideColor": t["ink"], "taskTextLightColor": t["ink"],
        "activeTaskBkgColor": t["hot_soft"], "activeTaskBorderColor": t["hot"], "doneTaskBkgColor": t["bubble"],
        "doneTaskBorderColor": t["control"], "critBkgColor": t["bad_soft"], "critBorderColor": t["bad"],
        "gridColor": t["edge"], "todayLineColor": t["hot"], "pieTitleTextColor": t["ink"],
        "pieSectionTextColor": t["ink"], "pieLegendTextColor": t["ink"], "pieStrokeColor": t["sunken"],
        "pieOuterStrokeColor": t["edge"], "pieOpacity": "1", "pieTitleTextSize": "16px",
        "pieSectionTextSize": f"{FONT_PX}px", "pieLegendTextSize": f"{FONT_PX}px", "quadrant1Fill": t["bubble"],
        "quadrant2Fill": t["page"], "quadrant3Fill": t["bubble"], "quadrant4Fill": t["page"],
        "quadrant1TextFill": t["ink2"], "quadrant2TextFill": t["ink2"], "quadrant3TextFill": t["ink2"],
        "quadrant4TextFill": t["ink2"], "quadrantPointFill": t["hot_fill"], "quadrantPointTextFill": t["ink"],
        "quadrantXAxisTextFill": t["ink2"], "quadrantYAxisTextFill": t["ink2"], "quadrantTitleFill": t["ink"],
        "quadrantInternalBorderStrokeFill": t["edge"], "quadrantExternalBorderStrokeFill": t["edge"],
        "commitLabelColor": t["ink2"], "commitLabelBackground": t["sunken"], "commitLineColor": t["edge"],
        "tagLabelColor": t["ink"], "tagLabelBackground": t["warn_soft"], "tagLabelBorder": t["warn"],
        "personBkg": t["bubble"], "personBorder": t["control"],
        "xyChart": {
            "backgroundColor": t["sunken"], "titleColor": t["ink"], "xAxisLabelColor": t["ink2"],
            "xAxisTitleColor": t["ink2"], "xAxisTickColor": t["edge"], "xAxisLineColor": t["edge"],
            "yAxisLabelColor": t["ink2"], "yAxisTitleColor": t["ink2"], "yAxisTickColor": t["edge"],
            "yAxisLineColor": t["edge"],
            "plotColorPalette": ",".join(t[strong] for strong, _ in _SERIES),
        },
    }  # fmt: skip
    for number in range(12):
        strong, soft = (t[name] for name in _SERIES[number % len(_SERIES)])
        variables |= {
            f"pie{number + 1}": soft, f"cScale{number}": soft, f"cScaleLabel{number}": t["ink"],
            f"cScalePeer{number}": strong, f"cScaleInv{number}": strong, f"fillType{number}": soft,
        }  # fmt: skip
        if number < 8:
            variables |= {f"git{number}": strong, f"gitInv{number}": t["card"], f"gitBranchLabel{number}": t["on_ink"]}
    return {
        "site_config": {
            "theme": "base", "look": "classic", "htmlLabels": False, "securityLevel": "strict",
            "themeVariables": variables, "flowchart": {"htmlLabels": False}, "fontFamily": "arial, sans-serif",
        },
        "svg": {"pipeline": "resvg-safe"},
        "resources": {"profile": "constrained", "limits": {"max_layout_work_units": MOST_WORK}},
    }  # fmt: skip
