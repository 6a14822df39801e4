"""How the page looks: one style sheet inside it, light or dark as the reader's system is, wide or narrow or printed."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--paper:#fff;--soft:#f5f7f9;--rule:#d5dae1;--link:#0b5cad;
--warn:#fff3d6;--edge:#9a6700}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#a5adb8;--paper:#15181d;--soft:#1d2229;
--rule:#39414c;--link:#6cb6ff;--warn:#3d300d;--edge:#d29922}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:76rem;margin:0 auto;
padding:1.5rem clamp(.75rem,3vw,2.5rem) 4rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;letter-spacing:-.01em;margin:0}h2{font-size:1.35rem;letter-spacing:-.01em;margin:0 0 .6rem}
h3{font-size:1.05rem;margin:1.6rem 0 .3rem}
header p,.dim{color:var(--dim);margin:.25rem 0}p{max-width:46rem}
header p,p.dim{font-size:.92rem}
a{color:var(--link);text-underline-offset:.15em}:focus-visible{outline:3px solid var(--link);outline-offset:2px}
main:focus{outline:none}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.5rem;z-index:2}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:.7rem 0;margin:1rem 0 0;
border-block:1px solid var(--rule);font-size:.95rem}
section{margin:3rem 0 0;padding-top:.25rem}section.summary{margin-top:1.6rem}
.lead{font-size:clamp(1.15rem,1rem + 1vw,1.5rem);line-height:1.35;max-width:44rem;margin:.2rem 0 1.4rem}
.glance{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(12.5rem,100%),1fr));gap:1px;margin:0 0 1.2rem;
background:var(--rule);border:1px solid var(--rule);border-radius:.5rem;overflow:hidden}
.glance div{background:var(--paper);padding:.8rem 1rem}
.glance dt{color:var(--dim);font-size:.88rem}
.glance dd{margin:0;font-size:1.75rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.glance dd.more{font-size:.85rem;font-weight:400;line-height:1.45;color:var(--dim)}
.attention{border-left:4px solid var(--edge);padding:.1rem 0 .1rem 1rem}.attention h3{margin:0}
.attention ul{margin:.2rem 0;padding-left:1.1rem}
.scroll{overflow-x:auto;max-width:100%;margin:.6rem 0 1.2rem}figure{margin:0}
.tall{max-height:36rem;overflow-y:auto}.tall thead th{position:sticky;top:0;z-index:1}
figure svg{display:block;margin-left:-8px}.tree svg{margin:0}
table{border-collapse:collapse;font-size:.9rem;line-height:1.45}
caption{text-align:left;font-weight:600;padding:.3rem 0}caption span{display:inline-block;max-width:calc(100vw - 2rem)}
th,td{border-bottom:1px solid var(--rule);padding:.3rem .65rem;text-align:left;vertical-align:top;
overflow-wrap:normal}
tr>:first-child{padding-left:.1rem}td{max-width:32rem}td.long,th.long{overflow-wrap:anywhere;min-width:min(17rem,55vw);max-width:24rem;white-space:pre-line}
thead th{background:var(--paper);color:var(--dim);font-weight:500;vertical-align:bottom;border-bottom-color:var(--dim)}
tbody th{font-weight:500;background:var(--paper)}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}td.n,td.t,th.t{white-space:nowrap}
td.fake,.fake{background:var(--warn)}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--link);padding:.1rem 0}
details details{margin-left:1rem}details[open]{padding-bottom:.4rem}
pre{margin:.4rem 0;white-space:pre-wrap;font:.86rem/1.5 ui-monospace,monospace;background:var(--soft);
padding:.6rem .8rem;border-radius:.35rem;max-height:20rem;overflow:auto}
.warn{background:var(--warn);border-left:4px solid var(--edge);padding:.5rem 1rem;max-width:none;margin:1rem 0 0}
.legend{list-style:none;font-size:.9rem;color:var(--dim);margin:.3rem 0}
@media (min-width:45rem){tbody th[scope=row]{position:sticky;left:0}}
@media print{body{max-width:none;padding:0;font-size:11pt}nav,.skip{display:none}
.scroll,.tall{overflow:visible;max-height:none}figure svg{max-width:100%;height:auto}
h2,h3,caption,summary{break-after:avoid}tr,figure,.glance div{break-inside:avoid}
tbody th[scope=row],.tall thead th{position:static}thead{display:table-header-group}pre{max-height:none}}
"""
