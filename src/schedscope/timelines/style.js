// The style sheet of the timeline, for the document or shadow tree that contains it.

const STYLE = `
.sst { position: relative; font: 13px/1.4 system-ui, sans-serif; }
.sst [hidden] { display: none !important; }
.sst canvas { display: block; width: 100%; cursor: grab; touch-action: none; }
.sst :focus-visible { outline: 2px solid Highlight; outline-offset: 1px; }
.sst-picture { position: relative; }
.sst .sst-strip { height: 30px; cursor: ew-resize; margin-bottom: .2em; }
.sst-bar, .sst-key { display: flex; gap: .4em; align-items: center; flex-wrap: wrap; margin-bottom: .4em; }
.sst button, .sst select, .sst input, .sst textarea { font: inherit; color: inherit; }
.sst-bar button, .sst-bar select, .sst-acts > button:not(.sst-link), .sst-tabs button { background: transparent; padding: .1em .6em;
  border: 1px solid currentColor; border-radius: 4px; cursor: pointer; }
.sst-bar select { background: Canvas; max-width: 11em; }
.sst-key { gap: .1em .9em; font-size: .92em; }
.sst-key i { display: inline-block; width: 1.4em; height: .9em; border-radius: 2px; margin-right: .35em; vertical-align: -.1em;
  print-color-adjust: exact; forced-color-adjust: none; }
.sst-few { margin: 0 0 .4em; }
.sst-quality { margin: 0 0 .4em; min-height: 1.4em; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.sst-lookup { display: flex; gap: .4em; flex-wrap: wrap; flex: 1 1 100%; }
.sst-search { position: relative; flex: 1 1 24em; max-width: 44em; }
.sst-find { width: 100%; box-sizing: border-box; padding: .2em .5em; border: 1px solid currentColor; border-radius: 4px; background: Canvas; }
.sst-find::placeholder { color: inherit; opacity: .75; }
.sst-found { position: absolute; z-index: 5; left: 0; right: 0; max-height: 22em; overflow: auto; background: Canvas; color: CanvasText;
  border: 1px solid currentColor; border-radius: 4px; box-shadow: 0 2px 8px #0004; }
.sst-option { padding: .2em .6em; cursor: pointer; overflow-wrap: anywhere; }
.sst-option span { opacity: .8; font-size: .9em; }
.sst-option[aria-selected=true] { background: Highlight; color: HighlightText; }
.sst-names { position: absolute; left: 0; top: 0; pointer-events: none; }
.sst-names div { position: absolute; left: 0; right: 0; text-align: right; pointer-events: auto; white-space: nowrap; overflow: hidden; }
.sst-names button { opacity: 0; padding: 0 .35em; border: 1px solid currentColor; border-radius: 3px; background: Canvas; color: CanvasText;
  cursor: pointer; font-size: 11px; line-height: 15px; margin: 3px 2px 0 0; }
.sst-names div:hover button, .sst-names button:focus-visible, .sst-names button[aria-pressed=true], .sst-low button { font-size: 9px; line-height: 10px; margin-top: 0; }
.sst-names .sst-fold { opacity: 1; }
.sst-names .sst-fold { float: left; border: 0; background: none; color: inherit; }
.sst-note { white-space: pre-line; min-height: 2.8em; font-variant-numeric: tabular-nums; margin-top: .3em; overflow-wrap: anywhere; }
.sst-tip { position: absolute; pointer-events: none; z-index: 4; padding: .35em .6em; max-width: 40em; width: max-content;
  border-radius: 4px; white-space: pre-line; box-shadow: 0 1px 6px #0006; font-variant-numeric: tabular-nums; }
.sst-panel { position: sticky; bottom: 0; z-index: 3; max-height: 46vh; display: flex; flex-direction: column;
  background: Canvas; color: CanvasText; border: 1px solid currentColor; border-radius: 6px 6px 0 0; }
.sst-tabs, .sst-tablist { display: flex; gap: .4em; flex-wrap: wrap; }
.sst-tabs { flex-wrap: nowrap; align-items: flex-start; padding: .4em .6em; border-bottom: 1px solid; border-color: GrayText; }
.sst-tabs button[aria-selected=true] { background: CanvasText; color: Canvas; }
.sst-tabs .sst-close { margin-left: auto; }
.sst-body { overflow: auto; padding: 0 .8em .8em; }
.sst-body h2, .sst-body h3, .sst-help h2 { font-size: 1.05em; margin: .7em 0 .3em; overflow-wrap: anywhere; }
.sst-body p { margin: .3em 0; }
.sst-body dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; margin: .4em 0; }
.sst-body dt { opacity: .8; } .sst-body dd { margin: 0; overflow-wrap: anywhere; }
.sst-body ul { margin: 0; padding-left: 1.1em; }
.sst-findings { padding-left: 2em !important; } .sst-findings li { padding-left: .4em; margin-bottom: .8em; border-left: 3px solid transparent; }
.sst-findings [aria-current] { border-left-color: Highlight; }
.sst-link { background: none; border: 0; padding: 0; color: LinkText !important; text-decoration: underline; cursor: pointer; text-align: left; }
.sst-faint { opacity: .8; }
.sst-code code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
.sst-copy { font-size: .85em !important; cursor: pointer; }
.sst-wide { overflow-x: auto; max-height: 26em; } .sst-two .sst-wide { max-height: none; }
.sst-two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 2.5em; align-items: start; }
.sst-two > :only-child { grid-column: 1 / -1; }
.sst-table table { border-collapse: collapse; } .sst-table th, .sst-table td { padding: .1em .8em .1em 0; text-align: left; white-space: nowrap; }
.sst-table th { border-bottom: 1px solid; position: sticky; top: 0; background: Canvas; } .sst-n { text-align: right !important; font-variant-numeric: tabular-nums; }
.sst-ask { display: grid; grid-template-columns: minmax(0, 3fr) minmax(10em, 1fr); gap: 1em; padding-top: .6em; }
.sst-ask textarea { width: 100%; box-sizing: border-box; font-family: ui-monospace, monospace; background: Canvas; }
.sst-schema { min-height: 30em; } /* nothing moves under the pointer when the tables arrive */
.sst-schema ul { padding-left: 1em; list-style: none; } .sst-schema summary { cursor: pointer; }
.sst-notes input { width: min(40em, 90%); background: Canvas; border: 1px solid currentColor; border-radius: 3px; margin: .1em .5em .1em 0; }
.sst-help { position: absolute; z-index: 6; right: 0; top: 2.4em; background: Canvas; color: CanvasText; border: 1px solid; border-radius: 6px; padding: .4em 1em .8em; box-shadow: 0 2px 10px #0005; }
.sst-help table { border-collapse: collapse; } .sst-help td { padding: .1em 1em .1em 0; } .sst-help td:first-child { white-space: nowrap; }
.sst kbd { font: .9em ui-monospace, monospace; border: 1px solid; border-radius: 3px; padding: 0 .3em; }
@media (forced-colors: active) { .sst-tabs button[aria-selected=true], .sst-option[aria-selected=true] { forced-color-adjust: none; background: Highlight; color: HighlightText; } }
@media (max-height: 480px) { .sst-panel { position: static; max-height: none; } }
@media (max-width: 900px) { .sst-two { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 640px) { .sst-ask { grid-template-columns: minmax(0, 1fr); } .sst-schema { min-height: 0; } .sst-quality { white-space: normal; } .sst-body dl { grid-template-columns: 1fr; } .sst-help { left: 0; } }
@media print { .sst-panel, .sst-search, .sst-bar select, .sst-names, .sst-help { display: none !important; } }
`;
