// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace openvc::study {

/// Style sheet of the report page. The source colours are the palette of Okabe and Ito, which
/// people with any kind of colour vision can tell apart, lightened for dark backgrounds.
inline constexpr std::string_view kReportStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #faf9f6; --card: #ffffff; --ink: #1d1f22; --soft: #63666c; --rule: #e4e2dc; --grid: #eceae5;
  --s0: #0072b2; --s1: #e69f00; --s2: #009e73; --s3: #cc79a7; --s4: #8b8e94; --s5: #c3c4c8;
  --ours: #0072b2; --theirs: #a9abb0; --mark: #3c3f44;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121315; --card: #1a1c1f; --ink: #eceae6; --soft: #a0a3a9; --rule: #2d3034; --grid: #26292d;
    --s0: #4ba6e0; --s1: #f0b63c; --s2: #33b88f; --s3: #dd97bf; --s4: #8b8e94; --s5: #55585d;
    --ours: #4ba6e0; --theirs: #6d7076; --mark: #d5d3ce;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1180px; margin: 0 auto; padding: 48px 32px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 4px 0 6px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 20px; line-height: 1.3; margin: 56px 0 4px; letter-spacing: -0.005em; }
h3 { font-size: 15px; line-height: 1.35; margin: 0 0 14px; }
p { margin: 0 0 10px; max-width: 70ch; }
.eyebrow { color: var(--soft); font-size: 13px; letter-spacing: 0.06em; text-transform: uppercase; margin: 0; }
.lead, figcaption, footer, .soft { color: var(--soft); }
figcaption, footer, table { font-size: 13.5px; line-height: 1.5; }
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; margin-top: 18px; }
.grid.loose { align-items: start; }
.stack { display: grid; gap: 20px; align-content: start; }
figure.card { display: flex; flex-direction: column; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 22px 24px; margin: 0; min-width: 0; }
.card svg { display: block; width: 100%; height: auto; overflow: visible; }
figcaption { margin-top: auto; padding-top: 14px; }
.hero { display: grid; grid-template-columns: 1fr 1fr; gap: 28px 40px; align-items: center; margin-top: 26px; padding: 30px 32px; }
.number { font-size: 68px; line-height: 1; font-weight: 650; letter-spacing: -0.03em; margin: 0 0 14px; color: var(--ours); }
.number small { font-size: 30px; font-weight: 500; letter-spacing: 0; margin-left: 4px; }
.hero p { margin: 0 0 8px; }
.hero p:last-child { margin: 0; }
.lead { max-width: 100ch; }
.facts { display: grid; grid-template-columns: repeat(4, 1fr); gap: 20px; margin-top: 20px; }
.facts .card { padding: 16px 20px; }
.facts b { display: block; font-size: 22px; line-height: 1.25; font-weight: 620; letter-spacing: -0.01em; }
.facts span { display: block; font-size: 13.5px; line-height: 1.45; color: var(--soft); }
.facts .name { color: var(--ink); margin-bottom: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 14px; padding: 0; list-style: none; font-size: 13.5px; color: var(--soft); }
.legend li { display: flex; align-items: center; gap: 7px; }
.key { width: 11px; height: 11px; border-radius: 2px; background: currentColor; flex: none; }
.key.round { border-radius: 50%; }
.key.ring { background: none; border: 2px solid currentColor; }
.key.diamond { transform: rotate(45deg) scale(0.8); border-radius: 0; }
.k-s0 { color: var(--s0); } .k-s1 { color: var(--s1); } .k-s2 { color: var(--s2); } .k-s3 { color: var(--s3); }
.k-s4 { color: var(--s4); } .k-ours { color: var(--ours); } .k-theirs { color: var(--theirs); } .k-mark { color: var(--mark); }
.scroll { overflow-x: auto; align-self: start; }
table { border-collapse: collapse; width: 100%; white-space: nowrap; }
th { text-align: right; font-weight: 500; color: var(--soft); padding: 0 0 8px 14px; vertical-align: bottom; border-bottom: 1px solid var(--rule); }
td { text-align: right; padding: 6px 0 6px 14px; border-bottom: 1px solid var(--grid); }
td.words { white-space: normal; min-width: 15ch; width: 99%; }
th:first-child, td:first-child, th.words, td.words { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
tr:last-child td { border-bottom: 0; }
td b { font-weight: 620; }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
dl { margin: 12px 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 6px 22px; font-size: 14.5px; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); max-width: 82ch; }
footer { margin-top: 56px; padding-top: 18px; border-top: 1px solid var(--rule); }
text { font-size: 13px; fill: var(--ink); }
.tick, .axis-title, .group { fill: var(--soft); font-size: 12.5px; }
.group { font-weight: 600; }
.strong { font-weight: 620; }
.axis { stroke: var(--soft); stroke-width: 1; }
.grid-line, line.grid { stroke: var(--grid); stroke-width: 1; }
.guide { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
.stem { stroke: var(--rule); stroke-width: 2; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); } .s4 { fill: var(--s4); } .s5 { fill: var(--s5); }
.ours { fill: var(--ours); } .theirs { fill: var(--theirs); } .heat { fill: var(--ours); }
.option, .plain-head { fill: var(--card); stroke: var(--ours); stroke-width: 2; }
.reference { fill: var(--mark); stroke: var(--card); stroke-width: 1.5; }
.dot { fill: var(--card); stroke: var(--mark); stroke-width: 1.5; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.ours-line { stroke: var(--ours); }
@media (max-width: 900px) {
  main { padding: 32px 20px 48px; }
  .grid, .hero { grid-template-columns: 1fr; }
  .facts { grid-template-columns: 1fr 1fr; }
  dl { grid-template-columns: 1fr; gap: 2px; } dd { margin-bottom: 10px; }
}
@media (max-width: 480px) { .facts { grid-template-columns: 1fr; } .number { font-size: 52px; } .card, .hero { padding: 18px 16px; } }
@media print { .card { break-inside: avoid; } main { padding: 0; } }
)css";

}  // namespace openvc::study
