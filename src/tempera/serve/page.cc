#include "tempera/serve/page.h"

#include <string>

namespace tempera::serve {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

constexpr const char* kHtml = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Tempera</title><link rel="stylesheet" href="/page.css"><script defer src="/page.js"></script>
<h1>Tempera</h1>
<p><label>model <select id="model"></select></label>
<label>sampling temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
<label>most tokens <input id="most" type="number" min="1" value="256"></label>
<label>API key <input id="key" type="password" autocomplete="off"></label></p>
<div id="messages" aria-live="polite"></div>
<form id="form"><textarea id="text" rows="3" required aria-label="message"></textarea>
<button id="send">Send</button> <button id="stop" type="button" disabled>Stop</button></form>
</html>
)";

constexpr const char* kCss =
    R"(body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
label { margin-right: 1rem; white-space: nowrap; }
input[type=number] { width: 5rem; }
textarea { width: 100%; box-sizing: border-box; font: inherit; }
.user, .assistant, .error { white-space: pre-wrap; padding: .5rem .75rem; margin: .5rem 0; border-radius: .5rem; }
.user { background: #e8eef8; } .assistant { background: #f3f3f3; } .error { background: #f8e4e4; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; }
.user { background: #243247; } .assistant { background: #262626; } .error { background: #4a2626; } }
)";

constexpr const char* kScript = R"('use strict';
const at = id => document.getElementById(id);
const history = [];
let abort = null;

function headers() {
  const key = at('key').value;
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
}

function show(kind, text) {
  const box = document.createElement('div');
  box.className = kind;
  box.textContent = text;
  at('messages').append(box);
  box.scrollIntoView({block: 'end'});
  return box;
}

async function listModels() {
  const answer = await fetch('/v1/models', {headers: headers()});
  if (!answer.ok) return;
  const names = (await answer.json()).data.map(model => model.id);
  at('model').replaceChildren(...names.map(name => new Option(name)));
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = '';
  for (let part; !(part = await reader.read()).done;) {
    waiting += part.value;
    for (let end; (end = waiting.indexOf('\n\n')) >= 0; waiting = waiting.slice(end + 2)) {
      const data = waiting.slice(0, end).replace(/^data: /, '');
      if (data !== '[DONE]') yield JSON.parse(data);
    }
  }
}

async function ask(text) {
  const turn = {role: 'user', content: text};
  show('user', text);
  abort = new AbortController();
  const request = {model: at('model').value, messages: [...history, turn], stream: true,
                   temperature: Number(at('temperature').value), max_tokens: Number(at('most').value)};
  const answer = await fetch('/v1/chat/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(request), signal: abort.signal});
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  const box = show('assistant', '');
  try {
    for await (const event of events(answer.body)) {
      if (event.error) throw new Error(event.error.message);
      box.textContent += event.choices[0]?.delta.content ?? '';
    }
  } finally {
    // A turn that was not answered is none of the conversation.
    if (box.textContent) history.push(turn, {role: 'assistant', content: box.textContent});
  }
}

at('form').addEventListener('submit', async event => {
  event.preventDefault();
  if (abort) return;
  const text = at('text').value;
  at('text').value = '';
  at('send').disabled = true;
  at('stop').disabled = false;
  try { await ask(text); } catch (error) { if (error.name !== 'AbortError') show('error', error.message); }
  abort = null;
  at('send').disabled = false;
  at('stop').disabled = true;
});
at('stop').addEventListener('click', () => abort?.abort());
at('text').addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey) return;
  event.preventDefault();
  at('form').requestSubmit();
});
at('key').addEventListener('change', listModels);
listModels();
)";

}  // namespace

void add_page(http::Router& router) {
  const auto add = [&](const char* path, const char* type, const char* text) {
    router.add("GET", path, [=](const http::Request&, http::Reply& reply) {
      reply.send(
          {.type = type,
           .body = text,
           .headers = {{"Content-Security-Policy", kPolicy}, {"Referrer-Policy", "no-referrer"}}});
    });
  };
  add("/", "text/html; charset=utf-8", kHtml);
  add("/page.css", "text/css; charset=utf-8", kCss);
  add("/page.js", "text/javascript; charset=utf-8", kScript);
}

}  // namespace tempera::serve
