#!/usr/bin/env python3
"""Plays the part of a Kubernetes API server that keeps Leases, for tests. Usage: kubernetes_api.py PORT [CERTIFICATE KEY TOKENS]

It keeps what is written in memory, in the namespace "team". Like the real one, it numbers versions, refuses an update of
another version (409) or without one (422), creates by PUT what there is not unless the object names a uid, leaves the
version alone if nothing has changed, and limits annotations. With a certificate it speaks TLS, and accepts the tokens
in the file TOKENS, one a line.

POST /faults adds a fault of the next "count" requests of "verb" (get, create, update):
  {"status": 503}    is the answer, and nothing is done      {"lose": true}   is done; the connection is closed
  {"body": "text"}   is the answer, and nothing is done      {"keep": true}   answers with the present object, and does nothing
  {"hold": true}     is done when POST /release is called, which waits until something is held, and returns when it has been done
"""
import http.server
import json
import ssl
import sys
import threading
import uuid

PREFIX = "/apis/coordination.k8s.io/v1/namespaces/"
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict",
           422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
MOST_ANNOTATION_BYTES = 256 << 10


class Refused(Exception):
    def __init__(self, code, message, reason=None):
        super().__init__(message)
        self.code, self.reason = code, reason or REASONS[code]


class Leases:
    """The Leases and the faults. Its methods are called under the lock."""

    def __init__(self):
        self.lock, self.released = threading.Condition(), 0
        self.held = 0
        self.version, self.all, self.faults = 1000, {}, []

    def fault(self, verb):
        for one in self.faults:
            if one["verb"] == verb:
                one["count"] -= 1
                if one["count"] == 0:
                    self.faults.remove(one)
                return one
        return {}

    def get(self, name):
        if name not in self.all:
            raise Refused(404, f'leases.coordination.k8s.io "{name}" not found')
        return self.all[name]

    def put(self, name, new):
        metadata, spec = new["metadata"], new.get("spec", {})
        if metadata["name"] != name or new["kind"] != "Lease" or new["apiVersion"] != "coordination.k8s.io/v1":
            raise Refused(400, "the object is not the one of the address")
        if spec.get("leaseDurationSeconds", 1) <= 0 or spec.get("leaseTransitions", 0) < 0:
            raise Refused(422, "spec.leaseDurationSeconds: must be greater than 0")
        annotations = metadata.get("annotations", {})
        if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATION_BYTES:
            raise Refused(422, "metadata.annotations: Too long: may not be more than 262144 bytes")
        old = self.all.get(name)
        if old is None:
            if "uid" in metadata:
                raise Refused(409, "Precondition failed: UID in precondition")
            metadata["uid"] = str(uuid.uuid4())
        elif metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise Refused(409, "Precondition failed: UID in precondition")
        elif "resourceVersion" not in metadata:
            raise Refused(422, "metadata.resourceVersion: must be specified for an update")
        elif metadata["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified; please apply your changes to the latest version and try again")
        elif new == old:
            return old
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.all[name] = new
        return new

    def create(self, name, new):
        if name in self.all:
            raise Refused(409, f'leases.coordination.k8s.io "{name}" already exists', "AlreadyExists")
        if "resourceVersion" in new["metadata"]:
            raise Refused(500, "resourceVersion should not be set on objects to be created")
        return self.put(name, new)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", 1 << 20, True
    leases, tokens = Leases(), None

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        text = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, code, message, reason):
        self.answer(code, json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                      "message": message, "reason": reason, "code": code}))

    def handle_verb(self):
        leases = self.leases
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/faults":
            with leases.lock:
                leases.faults.append({"count": 1, **json.loads(body)})
            return self.answer(200, "{}")
        if self.path == "/release":
            with leases.lock:
                leases.lock.wait_for(lambda: leases.held > 0, 20)
                leases.released += leases.held
                leases.lock.notify_all()
                leases.lock.wait_for(lambda: leases.held == 0)
            return self.answer(200, "{}")
        if self.tokens is not None:
            with open(self.tokens, encoding="utf-8") as known:
                if self.headers.get("Authorization", "") not in [f"Bearer {line.strip()}" for line in known]:
                    return self.refuse(401, "Unauthorized", "Unauthorized")
        namespace, _, rest = self.path.removeprefix(PREFIX).partition("/")
        kind, _, name = rest.partition("/")
        if not self.path.startswith(PREFIX) or kind != "leases":
            return self.refuse(404, "the server could not find the requested resource", "NotFound")
        verb = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}[self.command]
        with leases.lock:
            fault = leases.fault(verb)
            if "status" in fault:
                message = f'leases.coordination.k8s.io is forbidden: cannot {verb}' if fault["status"] == 403 else "scripted"
                return self.refuse(fault["status"], message, REASONS[fault["status"]])
            if "body" in fault:
                return self.answer(200, fault["body"])
            if "keep" in fault:
                return self.answer(200, json.dumps(leases.get(name)))
            if "hold" in fault:
                leases.held += 1
                leases.lock.wait_for(lambda: leases.released > 0)
                leases.released -= 1
            try:
                code, done = self.carry_out(verb, namespace, name, body)
            except Refused as why:
                return self.refuse(why.code, str(why), why.reason)
            finally:
                if "hold" in fault:
                    leases.held -= 1
                    leases.lock.notify_all()
        if "lose" in fault:
            self.close_connection = True
            return None
        return self.answer(code, done)

    def carry_out(self, verb, namespace, name, body):
        if namespace != "team":
            missing = f'namespaces "{namespace}"' if verb == "create" else f'leases.coordination.k8s.io "{name}"'
            raise Refused(404, missing + " not found")
        if verb == "get":
            return 200, json.dumps(self.leases.get(name))
        if verb == "delete":
            self.leases.get(name)
            return 200, json.dumps(self.leases.all.pop(name))
        new = json.loads(body)
        if verb == "create":
            return 201, json.dumps(self.leases.create(new["metadata"]["name"], new))
        return (200 if name in self.leases.all else 201), json.dumps(self.leases.put(name, new))

    do_GET = do_POST = do_PUT = do_DELETE = handle_verb


def main(port, certificate=None, key=None, tokens=None):
    Handler.tokens = tokens
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


main(*sys.argv[1:])
