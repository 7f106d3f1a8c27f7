"""The style sheet of the page: system fonts, two colour schemes, readable on a phone."""

CSS = """
:root {
  --ink: #222222; --paper: #ffffff; --soft: #5c6066; --faint: #d9d9d9; --card: #f6f7f9;
  --accent: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e6e6; --paper: #16181c; --soft: #a5abb3; --faint: #3a3f46; --card: #1f2227;
    --accent: #6db7e8;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; }
h1 { font-size: 1.7rem; margin: 0.6rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 3rem 0 0.4rem; }
.facts { color: var(--soft); margin: 0.2rem 0 1.2rem; }
nav ol { display: flex; flex-wrap: wrap; gap: 0.3rem 1.4rem; list-style: none; padding: 0; }
a { color: var(--accent); }
.intro { color: var(--soft); max-width: 46rem; }
.findings {
  background: var(--card); border-left: 4px solid var(--accent); border-radius: 4px;
  padding: 1rem 1.2rem 1rem 2.2rem; margin: 1rem 0;
}
.findings li + li { margin-top: 0.5rem; }
.wrong li { margin: 0.7rem 0; padding-left: 0.7rem; border-left: 4px solid var(--faint); }
.wrong li.warning { border-color: #e69f00; }
.wrong li.violated { border-color: #d55e00; }
.wrong a { font-weight: 600; margin-right: 0.4em; }
figure.square svg { max-width: 30rem; }
figure { margin: 1.2rem 0; overflow-x: auto; }
figure svg { width: 100%; max-width: 52rem; min-width: 34rem; height: auto; color: var(--ink); }
figure svg text { font-family: system-ui, -apple-system, "DejaVu Sans", sans-serif !important; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.28rem 0.8rem; text-align: left; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--ink); }
td { border-bottom: 1px solid var(--faint); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
@media print {
  main { max-width: none; padding: 0; }
  section { break-inside: avoid-page; }
  nav { display: none; }
  .table, figure { overflow-x: visible; }
}
code { background: var(--card); padding: 0.1em 0.35em; border-radius: 3px; }
footer { margin-top: 4rem; color: var(--soft); font-size: 0.85rem; }
"""
