"""A topology as text and as a picture."""

from xml.etree import ElementTree

import sojourn as sj


def drawn() -> sj.Topology:
    t = sj.Topology("shop")
    orders = t.source("orders", sj.sources.iterable(lambda: range(3)))
    check = t.operator("check", lambda v: [v], orders, key=lambda v: v, processors=2)
    t.feedback(check, check)
    t.map("note", lambda v: v, check["late"], chain=False)
    t.sink("out", sj.sinks.call(lambda _: None), t.filter("big", lambda v: v > 2, check))
    return t


def test_print_shows_every_vertex_and_where_it_leads() -> None:
    assert str(drawn()).splitlines() == [
        "topology shop",
        "  orders  source                         → check",
        "  check   operator, 2 processors, keyed  ↺ check  [late] → note  → big",
        "  note    map",
        "  big     filter                         → out",
        "  out     sink",
    ]


def test_a_notebook_shows_a_picture() -> None:
    picture = ElementTree.fromstring(drawn()._repr_svg_())
    space = "{http://www.w3.org/2000/svg}"
    told = [found.text for found in picture.iter(f"{space}text")]
    assert {"orders", "check", "note", "big", "out", "late"} <= set(told)
    assert len([*picture.iter(f"{space}rect")]) == 5
    lines = [path for path in picture.iter(f"{space}path") if "marker-end" in path.attrib]
    assert len(lines) == 5
    assert sum("stroke-dasharray" in line.attrib for line in lines) == 1


def test_an_empty_topology_can_be_drawn() -> None:
    assert str(sj.Topology("none")) == "topology none"
    picture = ElementTree.fromstring(sj.Topology("none")._repr_svg_())
    assert int(picture.attrib["width"]) > 0
    assert int(picture.attrib["height"]) > 0
