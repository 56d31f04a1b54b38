// New events appear on top of the table, at most as many as a page holds. Text only: nothing of an event becomes markup.
"use strict";
const MOST = 50;
const live = document.getElementById("live");
const body = document.querySelector("tbody");
let seen = 0;

function cell(row, text, to) {
  const td = row.insertCell();
  const holder = to ? td.appendChild(document.createElement("a")) : td;
  if (to) holder.href = to;
  holder.textContent = text;
}

function add(event) {
  if (!body) return location.reload();
  const row = body.insertRow(0);
  row.className = "new";
  cell(row, (event.recorded_at || "").slice(0, 19).replace("T", " "));
  cell(row, event.position || "live", event.position ? "/ui/events/" + event.position : undefined);
  cell(row, event.topic);
  cell(row, event.subject ? event.subject.kind + "/" + event.subject.id : "");
  cell(row, event.actor || "");
  cell(row, JSON.stringify(event.payload ?? null).slice(0, 120));
  while (body.rows.length > MOST) body.deleteRow(-1);
  seen += 1;
  live.textContent = seen + " new since the page was opened";
}

const source = new EventSource(live.dataset.source);
source.addEventListener("ready", () => { live.textContent = "Live: new events appear here"; });
source.addEventListener("event", (message) => add(JSON.parse(message.data)));
source.addEventListener("error", () => { live.textContent = "Not live: the server does not answer, trying again"; });
