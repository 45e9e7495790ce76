"""What programs rely on in glibc's malloc family and in the C++ operators. Where glibc can be asked, it has to agree."""

import xml.etree.ElementTree as ElementTree

import pytest

GROUPS = ["zero", "overflow", "alignment", "aligned_functions", "bad_alignment", "errno", "realloc_zero", "usable", "calloc_zero", "sized"]
RESIZES = [["pairs"], ["growth"], ["walk", "20000"]]
BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)


@pytest.mark.parametrize("group", GROUPS)
def test_glibc_itself(plain, helper, group):
    """The points that we check are true of glibc, or they would not be its semantics."""
    plain.run([helper("stress/conformance"), group])


@BOTH
@pytest.mark.parametrize("group", GROUPS)
def test_strata(strata, helper, group):
    strata.run([helper("stress/conformance"), group])


@pytest.mark.strata_only
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("conf", ["magazine_max:0,populate_pages:1,thp:never", "populate_pages:512,thp:always,background:on,decay_ms:0"])
def test_with_extreme_options(strata, helper, group, conf):
    strata.run([helper("stress/conformance"), group], conf=conf)


def check_information(result):
    """One well-formed document in the manner of glibc's, and some figures on stderr."""
    root = ElementTree.fromstring(result.text)
    assert root.tag == "malloc" and root.get("version")
    assert any(element.tag == "system" and int(element.get("size")) > 0 for element in root.iter())
    assert len(result.errors.splitlines()) > 2


def test_information_of_glibc_itself(plain, helper):
    check_information(plain.run([helper("stress/conformance"), "information"]))


@BOTH
def test_information(strata, helper):
    check_information(strata.run([helper("stress/conformance"), "information"], quiet=False))


@BOTH
@pytest.mark.parametrize("arguments", RESIZES, ids=lambda arguments: arguments[0])
def test_resize(strata, helper, arguments):
    strata.run([helper("stress/resize"), *arguments])


@pytest.mark.strata_only
@pytest.mark.parametrize("arguments", RESIZES, ids=lambda arguments: arguments[0])
def test_resize_with_extreme_options(strata, helper, arguments):
    strata.run([helper("stress/resize"), *arguments], conf="magazine_max:0,decay_ms:0,populate_pages:1")


@pytest.mark.slow
@BOTH
def test_resize_long(strata, helper):
    strata.run([helper("stress/resize"), "walk", 1000000], timeout_s=300)


@pytest.mark.parametrize("group", ["forms", "handler", "failure"])
def test_operators_of_libstdcxx_itself(plain, helper, group):
    plain.run([helper("stress/operators"), group])


@BOTH
@pytest.mark.parametrize("group", ["forms", "handler", "failure"])
def test_operators(strata, helper, group):
    strata.run([helper("stress/operators"), group])


@pytest.mark.strata_only
def test_operators_are_stratas(strata, helper):
    """Every form of the operators and every function of the family resolves to libstrata.so."""
    strata.run([helper("stress/operators"), "where"])
