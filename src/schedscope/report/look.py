"""The style sheet of the page: system fonts, light, dark and paper, readable on a phone."""

_LIGHT = """
  --ink: #222222; --paper: #ffffff; --soft: #5c6066; --faint: #d9d9d9; --card: #f6f7f9;
  --accent: #0068a3; --warning: #d98e00; --violated: #c8500a;
"""
_DARK = """
  --ink: #e6e6e6; --paper: #16181c; --soft: #a5abb3; --faint: #3a3f46; --card: #1f2227;
  --accent: #6db7e8; --warning: #e8a93c; --violated: #f0824a;
"""

CSS = f"""
:root {{ {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
html {{ scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}}
main {{ max-width: 64rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.25; margin: 0.6rem 0 0.2rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.25rem; line-height: 1.3; margin: 3.2rem 0 0.4rem; }}
p {{ margin: 0.5rem 0; max-width: 48rem; }}
a {{ color: var(--accent); text-underline-offset: 0.15em; }}
:target {{ scroll-margin-top: 1rem; }}
.facts {{ color: var(--soft); margin: 0.1rem 0; }}
.facts a {{ color: inherit; }}
.intro, .how {{ color: var(--soft); }}
.how {{ font-size: 0.85rem; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 1.2rem 0 0; }}
.tiles div {{ background: var(--card); border-radius: 6px; padding: 0.5rem 0.9rem; }}
.tiles dt {{ color: var(--soft); font-size: 0.8rem; }}
.tiles dd {{ margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }}
.wrong {{ list-style: none; counter-reset: finding; margin: 1rem 0; padding: 0; }}
.wrong li {{
  counter-increment: finding; background: var(--card); border-radius: 6px; margin: 0.7rem 0;
  border-left: 5px solid var(--faint); padding: 0.7rem 1rem 0.7rem 1.1rem;
}}
.wrong li.warning {{ border-color: var(--warning); }}
.wrong li.violated {{ border-color: var(--violated); }}
.wrong p {{ margin: 0.15rem 0; max-width: 54rem; }}
.what {{ display: flex; flex-wrap: wrap; gap: 0 0.7rem; align-items: baseline; max-width: none; }}
.wrong .what {{ max-width: none; }}
.what b::before {{ content: counter(finding) ". "; }}
.what i {{ color: var(--soft); font-style: normal; font-size: 0.85rem; }}
.what .cost {{ margin-left: auto; font-variant-numeric: tabular-nums; }}
.where {{ font-size: 0.9rem; }}
.findings {{ padding-left: 1.2rem; max-width: 50rem; }}
.findings li + li {{ margin-top: 0.3rem; }}
figure {{ margin: 1.2rem 0; overflow-x: auto; }}
figure svg {{
  display: block; width: 100%; max-width: 56rem; min-width: 34rem; height: auto; color: var(--ink);
}}
figure.square svg {{ max-width: 30rem; min-width: 18rem; }}
figure svg text {{ font-family: system-ui, -apple-system, "DejaVu Sans", sans-serif !important; }}
.live {{ margin: 1.2rem 0; }}
details {{ margin: -0.6rem 0 1.2rem; }}
summary {{ cursor: pointer; }}
.table {{ overflow-x: auto; margin: 1rem 0; }}
table {{ border-collapse: collapse; font-size: 0.9rem; line-height: 1.4; }}
th, td {{ padding: 0.28rem 0.8rem; text-align: left; white-space: nowrap; vertical-align: top; }}
th:first-child, td:first-child {{ padding-left: 0.2rem; }}
th {{
  color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--ink); vertical-align: bottom;
  white-space: normal; line-height: 1.25;
}}
td {{ border-bottom: 1px solid var(--faint); }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
td.long {{ white-space: normal; min-width: 24rem; }}
code, kbd {{
  background: var(--card); padding: 0.1em 0.35em; border-radius: 3px;
  font: 0.9em ui-monospace, "DejaVu Sans Mono", monospace;
}}
.wrong code {{ background: none; padding: 0; }}
nav ol {{ columns: 18rem; padding-left: 1.4rem; }}
footer {{ margin-top: 3rem; color: var(--soft); font-size: 0.85rem; }}
@media print {{
  @page {{ margin: 14mm 12mm; }}
  body {{ font-size: 10.5pt; }}
  main {{ max-width: none; padding: 0; }}
  h2 {{ margin-top: 1.6rem; break-after: avoid; }}
  .intro, section > p:not(.how) {{ break-after: avoid; }}
  p, .wrong li, figure, tr, .tiles, .live {{ break-inside: avoid; }}
  .how {{ break-before: avoid; }}
  .links {{ display: none; }}
  .tiles {{ gap: 0.4rem; }}
  .tiles div {{ padding: 0.3rem 0.6rem; }}
  .tiles dd {{ font-size: 1.05rem; }}
  .tiles div, .wrong li {{ border: 1px solid var(--faint); }}
  .wrong li {{ border-left-width: 5px; }}
  thead {{ display: table-header-group; }}
  table {{ font-size: 8.5pt; }}
  th, td {{ padding: 0.2rem 0.55rem; }}
  td.long {{ min-width: 0; }}
  nav, .sst-bar button {{ display: none !important; }}
  .table, figure {{ overflow: visible; }}
  figure svg {{ min-width: 0; max-width: 100%; }}
  .live canvas {{ height: auto !important; }}
  a {{ color: inherit; text-decoration: none; }}
}}
"""
