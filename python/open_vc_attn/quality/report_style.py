# SPDX-License-Identifier: BSD-3-Clause
"""Style sheet of the page, in the look of the program's error report.

The colours of series are the palette of Okabe and Ito, which people with any kind of colour vision
can tell apart, lightened for dark backgrounds.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #faf9f6; --card: #ffffff; --ink: #1d1f22; --soft: #63666c; --line: #e4e2dc; --grid: #eceae5;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #d55e00; --c5: #56b4e9; --c6: #8b8e94;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121315; --card: #1a1c1f; --ink: #eceae6; --soft: #a0a3a9; --line: #2d3034; --grid: #26292d;
    --c0: #4ba6e0; --c1: #f0b63c; --c2: #33b88f; --c3: #dd97bf; --c4: #ec8248; --c5: #8accf2; --c6: #8b8e94;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink); font-variant-numeric: tabular-nums;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 48px 32px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 4px 0 10px; letter-spacing: -0.01em; }
h2 { font-size: 20px; line-height: 1.3; margin: 52px 0 16px; }
h3 { font-size: 15px; line-height: 1.35; margin: 0 0 14px; }
p { margin: 0; }
.eyebrow { color: var(--soft); font-size: 13px; letter-spacing: 0.06em; text-transform: uppercase; }
.lead { color: var(--soft); max-width: 96ch; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 22px 24px; margin: 0; min-width: 0; }
.hero { margin-top: 26px; }
.hero .name { font-weight: 600; margin-bottom: 14px; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(4, 1fr); gap: 20px; }
.facts b { display: block; font-size: 30px; line-height: 1.2; font-weight: 640; letter-spacing: -0.02em; }
.facts div:first-child b { color: var(--c0); }
.facts span { display: block; font-size: 13.5px; line-height: 1.45; color: var(--soft); margin-top: 4px; }
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; }
.wide { grid-column: 1 / -1; }
figure.card { display: flex; flex-direction: column; }
figcaption, footer, table { font-size: 13.5px; line-height: 1.5; }
figcaption, footer, .soft { color: var(--soft); }
figure.card > figcaption { margin-top: auto; padding-top: 14px; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 14px; padding: 0; list-style: none; font-size: 13.5px; color: var(--soft); }
.legend li { display: flex; align-items: center; gap: 7px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; white-space: nowrap; }
th { text-align: right; font-weight: 500; color: var(--soft); padding: 0 0 8px 16px; border-bottom: 1px solid var(--line); }
td { text-align: right; padding: 7px 0 7px 16px; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
td small { color: var(--soft); font-size: 12.5px; margin-left: 10px; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 9px; background: var(--c0); }
dl { margin: 18px 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 6px 22px; font-size: 14.5px; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); max-width: 90ch; }
.pictures { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; margin-bottom: 22px; }
.pictures figure { margin: 0; min-width: 0; }
.pictures img { display: block; width: 100%; height: auto; border-radius: 6px; image-rendering: pixelated; }
.pictures figcaption { padding-top: 6px; }
.pictures b { color: var(--ink); font-weight: 600; margin-right: 6px; }
footer { margin-top: 48px; padding-top: 18px; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
text { font-size: 13px; fill: var(--ink); }
text.soft { fill: var(--soft); font-size: 12.5px; }
text.strong { font-weight: 600; }
text.number { font-size: 12.5px; }
text.light { fill: #ffffff; }
.rule { stroke: var(--grid); fill: none; }
.cell { fill: var(--c0); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.c0 { --own: var(--c0); } .c1 { --own: var(--c1); } .c2 { --own: var(--c2); } .c3 { --own: var(--c3); }
.c4 { --own: var(--c4); } .c5 { --own: var(--c5); } .c6 { --own: var(--c6); }
.line { stroke: var(--own); } .fill, .dot { fill: var(--own); } .swatch { background: var(--own); }
@media (max-width: 900px) {
  main { padding: 32px 20px 48px; }
  .grid { grid-template-columns: 1fr; } .facts { grid-template-columns: 1fr 1fr; }
  dl { grid-template-columns: 1fr; gap: 2px; } dd { margin-bottom: 10px; }
}
@media (max-width: 480px) { .pictures { grid-template-columns: 1fr; } }
@media print { .card, .pictures { break-inside: avoid; } main { padding: 0; } }
"""
