#include "bilevel/report/style.h"

namespace bilevel {

const std::string_view report_style = R"css(
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--text:#1f2328;--soft:#59636e;--line:#d8dee4;
--accent:#4338ca;--accent-soft:#eceafd;--good:#1a7f37;--warn:#9a6700;--bad:#c62828;--bad-soft:#fdecec}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--card:#161b22;--text:#e6edf3;--soft:#9198a1;
--line:#30363d;--accent:#a5b4fc;--accent-soft:#262a4a;--good:#57c46d;--warn:#d9a72c;--bad:#ff8a80;
--bad-soft:#3b1a1d}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.55 system-ui,-apple-system,"Segoe UI",
Roboto,Helvetica,Arial,sans-serif;overflow-wrap:anywhere}
header,main,footer{max-width:84rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:2.25rem}
h1{font-size:1.9rem;line-height:1.2;letter-spacing:-.015em;margin:.65rem 0 .6rem;font-weight:680}
h2{font-size:1.3rem;letter-spacing:-.01em;margin:2.75rem 0 .9rem;padding-top:1.1rem;
border-top:1px solid var(--line);font-weight:640}
h3{font-size:.98rem;margin:0 0 .6rem;font-weight:620}
p{margin:.4rem 0 .9rem;max-width:72ch}
a{color:var(--accent)}
.eyebrow{display:flex;flex-wrap:wrap;gap:.5rem .75rem;align-items:center;color:var(--soft);font-size:.9rem}
.status{white-space:nowrap;font-weight:620;padding:.08rem .6rem;border-radius:99px;border:1px solid currentColor}
.finished{color:var(--good)}.running{color:var(--accent)}.interrupted,.killed{color:var(--warn)}
.failed{color:var(--bad)}
.lead{font-size:1.12rem;line-height:1.5}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
.lead code{background:var(--accent-soft);padding:.1em .35em;border-radius:.3rem}
.headlines{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.75rem;margin:1.25rem 0 0;
padding:0}
.headlines div{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.7rem .9rem}
.headlines dt{color:var(--soft);font-size:.82rem}
.headlines dd{margin:.1rem 0 0;font-size:1.3rem;font-weight:640;letter-spacing:-.01em;
font-variant-numeric:tabular-nums;color:var(--accent)}
.callout{border-left:4px solid var(--bad);background:var(--bad-soft);padding:.75rem 1rem;border-radius:.35rem;
margin:1.25rem 0;max-width:none}
.callout.soft{border-color:var(--warn);background:var(--card)}
.callout p{margin:0 0 .4rem;max-width:none}.callout p:last-child{margin:0}
.note{background:var(--card);border:1px dashed var(--line);border-radius:.5rem;padding:.75rem 1rem;
color:var(--soft)}
.remark{color:var(--soft);font-size:.92rem;margin-top:.9rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.95rem 1rem .8rem;margin:0}
.card img{display:block;width:100%;height:auto}
.grid,.view{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr));gap:1rem}
.switch{display:flow-root}
.switch>.view{display:none;margin-top:.9rem}
.switch>.first:first-child{display:grid}
.switch>input{position:absolute;opacity:0}
.against{color:var(--soft);font-size:.92rem;margin-right:.5rem}
.switch>label{display:inline-block;padding:.28rem .8rem;margin:0 .3rem .3rem 0;border:1px solid var(--line);
border-radius:99px;background:var(--card);font-size:.92rem;cursor:pointer}
.switch>input:checked+label{background:var(--accent);border-color:var(--accent);color:var(--ground);
font-weight:600}
.switch>input:focus-visible+label{outline:2px solid var(--accent);outline-offset:2px}
#axis-steps:checked~.view-steps,#axis-calls:checked~.view-calls,#axis-seconds:checked~.view-seconds{
display:grid}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem .9rem;margin:.55rem 0 0;padding:0;
font-size:.88rem;line-height:1.4}
.swatch{display:inline-block;width:.8em;height:.8em;border-radius:.2em;margin-right:.4em;vertical-align:-.05em;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
figcaption{color:var(--soft);font-size:.88rem;margin-top:.5rem}
.wide .scroll{padding-bottom:.4rem}
.wide img{min-width:32rem;max-width:60rem;margin:0 auto}
.scroll{overflow-x:auto;max-width:100%}
pre{margin:0 0 1rem;padding:.7rem .9rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem;
font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.84rem;line-height:1.45;
overflow-wrap:normal;user-select:all}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;font-size:.93rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;color:var(--soft);padding-bottom:.4rem}
th,td{text-align:left;padding:.34rem 1.4rem .34rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere;min-width:3.5rem;max-width:36rem}
thead th{color:var(--soft);font-weight:600;font-size:.86rem;vertical-align:bottom}
tbody th{font-weight:500;white-space:nowrap}
.numbers td,.numbers thead th:not(:first-child){text-align:right;white-space:nowrap}
.best{font-weight:680;color:var(--accent)}
details{margin:1rem 0}
summary{cursor:pointer;color:var(--accent);font-weight:560}
details[open] summary{margin-bottom:.6rem}
.suspects{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.6rem,1fr));gap:.75rem;list-style:none;
padding:0;margin:0}
.suspects li{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.55rem;
font-size:.86rem;line-height:1.35}
.suspects img{display:block;width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;
border-radius:.3rem;background:#000;margin-bottom:.45rem}
.suspects .given{color:var(--soft)}.suspects .suggested{font-weight:640;color:var(--accent)}
.suspects .small{color:var(--soft);font-size:.92em}
.bar{display:flex;align-items:center;gap:.6rem;font-size:.88rem;color:var(--soft);margin:0 0 .9rem}
.bar i{display:block;width:9rem;height:.8rem;border-radius:.2rem;-webkit-print-color-adjust:exact;
print-color-adjust:exact}
.columns figure{max-width:28rem;align-self:start}.columns table{margin-bottom:1.2rem}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:0 2.5rem}
footer{color:var(--soft);font-size:.86rem;padding-top:2.5rem;padding-bottom:2.5rem}
@media(max-width:600px){header,main,footer{padding-left:1rem;padding-right:1rem}header{padding-top:1.25rem}
h1{font-size:1.5rem}.lead{font-size:1.03rem}.headlines{grid-template-columns:1fr 1fr}
.headlines dd{font-size:1.12rem}.wide img{min-width:0}
tbody th,.numbers thead th:not(:first-child){white-space:normal}.card{padding:.75rem .7rem .65rem}th,td{padding-right:.9rem}
.suspects{grid-template-columns:repeat(auto-fill,minmax(6rem,1fr));gap:.5rem}}
@media print{:root{--ground:#fff;--card:#fff;--text:#000;--soft:#444;--line:#bbb;--accent:#312e81;
--accent-soft:#eee}body{font-size:10.5pt}.card,.suspects li,.headlines div,tr{break-inside:avoid}
h2,h3{break-after:avoid}.against,.switch>label{display:none}.switch>input:checked+label{display:inline-block;
background:none;color:#000;border-color:#bbb}.against{display:inline}.wide img{min-width:0}
.grid,.view{grid-template-columns:1fr 1fr}.scroll{overflow:visible}}
)css";

}  // namespace bilevel
