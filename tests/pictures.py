"""Files made by hand, small and right, for tests to send as they are or to damage."""

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


PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
