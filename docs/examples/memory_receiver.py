"""A memory for Holdfast in thirty lines: it keeps what people said, and finds it again by its words.

python3 memory_receiver.py path/to/memory-webhook.key memory.db 8788
"""

import base64
import hmac
import json
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

KEY = Path(sys.argv[1])
if not KEY.exists():
    sys.exit(f'{KEY} is not there yet: start Holdfast once with memory = "webhook", which makes it.')
SECRET = base64.b64decode(KEY.read_text().strip().removeprefix("whsec_"))
STORE = sqlite3.connect(sys.argv[2], isolation_level=None)
STORE.execute("CREATE TABLE IF NOT EXISTS told (key TEXT PRIMARY KEY, scope TEXT, text TEXT)")


def answer(type, key="", scope="", messages=(), query="", limit=0, **rest):
    if type == "memory.commit":  # A key that is there is the same stretch, told again: that changes nothing.
        text = "\n".join(said["text"] for said in messages if said["role"] == "user")
        STORE.execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", (key, scope, text))
        return 200, {"receipt": key}
    if type == "memory.retract":  # The key stays, without its text: a telling that comes late is not kept.
        STORE.execute("INSERT OR REPLACE INTO told VALUES (?, '', '')", (key,))
        return 200, {}
    if type == "memory.recall":
        words = {word.strip(".,:;!?").lower() for word in query.split()}
        rows = STORE.execute("SELECT key, text FROM told WHERE scope = ?", (scope,)).fetchall()
        hits = [(sum(word in text.lower() for word in words), key, text) for key, text in rows if text]
        best = sorted((hit for hit in hits if hit[0]), reverse=True)[:limit]
        return 200, {"memories": [{"id": key, "text": text} for _, key, text in best]}
    return (200, {}) if type == "memory.health" else (501, {})


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        sent_at = self.headers["webhook-timestamp"]
        signed = f"{self.headers['webhook-id']}.{sent_at}.".encode() + body
        proof = "v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256")).decode()
        known = any(hmac.compare_digest(proof, each) for each in self.headers["webhook-signature"].split())
        is_ours = known and abs(time.time() - int(sent_at)) < 300  # An old one may be somebody's copy.
        status, said = answer(**json.loads(body)) if is_ours else (401, {})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())


HTTPServer(("127.0.0.1", int(sys.argv[3])), Receiver).serve_forever()
