"""How the page looks: one style sheet inside it, light or dark as the reader's system is, wide or narrow or printed."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--paper:#fff;--soft:#f3f5f8;--rule:#c5ccd6;--link:#0b5cad;
--warn:#fff3d6;--edge:#9a6700}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#a5adb8;--paper:#15181d;--soft:#1f242c;--rule:#454d59;
--link:#6cb6ff;--warn:#3d300d;--edge:#d29922}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:80rem;margin:0 auto;
padding:1rem clamp(.75rem,3vw,2rem);overflow-wrap:anywhere}
h1{font-size:1.7rem;margin:.5rem 0 0}h2{font-size:1.3rem;margin:0 0 .5rem}h3{font-size:1.05rem;margin:1.2rem 0 .25rem}
header p,.dim{color:var(--dim);margin:.25rem 0}p{max-width:48rem}
a{color:var(--link)}:focus-visible{outline:3px solid var(--link);outline-offset:2px}
main:focus{outline:none}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.5rem;z-index:2}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:.6rem 0;margin:0;
border-block:1px solid var(--rule)}
section{margin:2.2rem 0;padding-top:.5rem}
.glance{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(13rem,100%),1fr));gap:.75rem;margin:1.2rem 0}
.glance div{background:var(--soft);border:1px solid var(--rule);border-radius:.5rem;padding:.6rem .9rem}
.glance dt{color:var(--dim);font-size:.9rem}.glance dd{margin:0;font-size:1.5rem;font-weight:600;line-height:1.3}
.glance dd.more{font-size:.85rem;font-weight:400;line-height:1.4}
.scroll{overflow-x:auto;max-width:100%;margin:.5rem 0 1rem}figure{margin:0}
figure svg{display:block;border:1px solid var(--rule);border-radius:.5rem}
table{border-collapse:collapse;font-size:.9rem}
caption{text-align:left;font-weight:600;padding:.25rem 0}caption span{display:inline-block;max-width:calc(100vw - 2rem)}
th,td{border:1px solid var(--rule);padding:.25rem .6rem;text-align:left;vertical-align:top;overflow-wrap:normal}
td{max-width:32rem}td.long,th.long{overflow-wrap:anywhere;min-width:min(17rem,55vw);max-width:24rem}
thead th{background:var(--soft)}tbody th{font-weight:500;background:var(--paper)}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.t{white-space:nowrap}
td.fake,.fake{background:var(--warn)}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}
pre{margin:.25rem 0;white-space:pre-wrap;font:.85rem/1.45 ui-monospace,monospace;background:var(--soft);padding:.5rem;
max-height:20rem;overflow:auto}
.warn{background:var(--warn);border:1px solid var(--edge);border-radius:.5rem;padding:.5rem 1rem;max-width:none}
@media (min-width:45rem){tbody th[scope=row]{position:sticky;left:0}}
@media print{nav,.skip{display:none}.scroll{overflow:visible}section{break-inside:avoid-page}}
"""
