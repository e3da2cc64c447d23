"""A package registry for npm, pip and cargo on https://registry.example.com, whose files are on https://files.example.com.

Makes one tiny package for each tool, and the packages by which the tools learn where files are. Each request is logged.
Arguments: directory for the log, certificate, key. Prints a line when the socket listens.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import ssl
import sys
import tarfile
import zipfile

FILES = "https://files.example.com"
PAGES = {}


def tarball(root, files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue())


def npm(name, version):
    about = {"name": name, "version": version, "main": "index.js"}
    packed = tarball("package", {"package.json": json.dumps(about), "index.js": "module.exports = 'from the registry';\n"})
    path = f"/npm-files/{name}-{version}.tgz"
    PAGES[path] = packed
    digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    about["dist"] = {"tarball": FILES + path, "integrity": f"sha512-{digest}"}
    page = {"name": name, "dist-tags": {"latest": version}, "versions": {version: about}}
    PAGES[f"/npm/{name}"] = json.dumps(page).encode()


def wheel(name, version):
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{module}.py", "WORD = 'from the registry'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    path = f"/wheels/{module}-{version}-py3-none-any.whl"
    PAGES[path] = packed.getvalue()
    PAGES[f"/simple/{name}/"] = f'<!DOCTYPE html><a href="{FILES}{path}">{path.rsplit("/", 1)[1]}</a>'.encode()


def crate(name, version):
    manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n'
    packed = tarball(f"{name}-{version}", {"Cargo.toml": manifest, "src/lib.rs": 'pub const WORD: &str = "x";\n'})
    PAGES[f"/crates/{name}/{version}/download"] = packed
    entry = {"name": name, "vers": version, "deps": [], "features": {}, "yanked": False}
    entry["cksum"] = hashlib.sha256(packed).hexdigest()
    PAGES[f"/index/{name[:2]}/{name[2:4]}/{name}"] = json.dumps(entry).encode()


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        print(self.command, self.headers["Host"], self.path, self.headers["Authorization"], file=LOG, flush=True)
        page = PAGES.get(self.path)
        body = page or b"not found"
        self.send_response(200 if page else 404)
        kinds = {"/npm/": "application/json", "/simple/": "text/html"}
        kind = next((kind for start, kind in kinds.items() if self.path.startswith(start)), "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = answer

    def log_message(self, *arguments):
        pass


LOG = open(f"{sys.argv[1]}/requests.log", "a")
for package in ("npm", "tiny-viv"):
    npm(package, "99.0.0")
for package in ("pip", "tiny-viv"):
    wheel(package, "99.0.0")
crate("tiny-viv", "99.0.0")
PAGES["/index/config.json"] = json.dumps({"dl": f"{FILES}/crates"}).encode()
server = http.server.ThreadingHTTPServer(("203.0.113.10", 443), Registry)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("listens", flush=True)
server.serve_forever()
