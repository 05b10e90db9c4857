"""PDF files made by hand: no library that writes them is needed."""

from __future__ import annotations

from collections.abc import Sequence

FONT = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def pdf_of(objects: Sequence[str], trailer: str = "") -> bytes:
    """A file of these objects, numbered from 1; the first one is the catalog. trailer: more entries of it."""
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    begin = len(out)
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{begin}\n%%EOF\n"
    return out + end.encode()


def stream(content: str, more: str = "") -> str:
    return f"<< /Length {len(content)} {more} >>\nstream\n{content}\nendstream"


def pdf_drawn(pages: Sequence[str], resources: str = "", more: Sequence[str] = (), trailer: str = "") -> bytes:
    """One page for each content stream. /F1 is Helvetica. more: objects from number 4 on, for `resources`."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", FONT, *more]
    kids = []
    for content in pages:
        kids.append(len(objects) + 1)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 2} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> {resources} >> >>"
        )
        objects.append(stream(content))
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] /Count {len(kids)} >>"
    return pdf_of(objects, trailer)


def pdf_with(pages: Sequence[str]) -> bytes:
    """One page for each text (one line, Latin letters)."""
    return pdf_drawn([shown(text, 72, 720) if text else "" for text in pages])


def shown(text: str, x: float, y: float, size: float = 12) -> str:
    """The content that shows a line of text at a place."""
    words = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"BT /F1 {size} Tf {x} {y} Td ({words}) Tj ET\n"
