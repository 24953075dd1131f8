"""Small valid files made by hand, for tests to send or to damage."""

import struct
import zlib


def png(width: int = 2, height: int = 3, tail: bytes = b"") -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + tail + b"\0\0\0\0IEND\xaeB`\x82"


def jpeg(width: int = 2, height: int = 3) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 10) + b"Exif\0\0.."
    size = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + exif + b"\xff\xff" + size + b"\xff\xda" + bytes(20) + b"\xff\xd9"


def gif(width: int = 2, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def webp(width: int = 2, height: int = 3, kind: bytes = b"VP8X") -> bytes:
    wide, high = width - 1, height - 1
    match kind:
        case b"VP8L":
            body = b"\x2f" + struct.pack("<I", wide | high << 14)
        case b"VP8 ":
            body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
        case _:
            body = bytes(4) + wide.to_bytes(3, "little") + high.to_bytes(3, "little")
    chunk = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk)) + chunk


def pdf(*contents: bytes, trailer: bytes = b"", page: bytes = b"/Contents {contents} 0 R") -> bytes:
    """Return a PDF file with a page for each content stream; `page` has the other entries of each page."""
    count = len(contents)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, content in enumerate(contents):
        own = page.replace(b"{contents}", b"%d" % (5 + 2 * n))
        fonts = b"/Resources << /Font << /F1 3 0 R >> >>"
        objects += (b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] %b %b >>" % (fonts, own), content)
    return written(*objects, trailer=trailer)


def written(*objects: bytes, trailer: bytes = b"") -> bytes:
    """Return a PDF file of these objects, numbered from 1 on; the first is its catalogue."""
    body, places = b"%PDF-1.7\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, len(body))
    return body + b"xref\n0 %d\n%b" % (size, table) + end


def words(text: str) -> bytes:
    """Return a content stream that shows a line of text."""
    return stream(b"BT /F1 12 Tf 72 720 Td (%b) Tj ET" % text.encode())


def stream(content: bytes, fields: bytes = b"") -> bytes:
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), fields, content)


PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
