"""Abseil from the system's package, under the labels that Abseil's own BUILD files have.

The package installs one pkg-config file for each component; its `Requires` line is the dependency graph. Every
component becomes a cc_library of the repository's root, and the table below gives the usual labels to those that our
code may name. To use another part of Abseil, add a row.
"""

load(":system_library.bzl", "LIBRARY_DIRS", "fail_missing", "find_library", "link_library")

# Abseil package -> {target: component}. The component is the name of the pkg-config file without "absl_".
_LABELS = {
    "algorithm": {"algorithm": "algorithm", "container": "algorithm_container"},
    "base": {
        "base": "base",
        "config": "config",
        "core_headers": "core_headers",
        "endian": "endian",
        "log_severity": "log_severity",
    },
    "cleanup": {"cleanup": "cleanup"},
    "container": {
        "btree": "btree",
        "fixed_array": "fixed_array",
        "flat_hash_map": "flat_hash_map",
        "flat_hash_set": "flat_hash_set",
        "inlined_vector": "inlined_vector",
        "node_hash_map": "node_hash_map",
        "node_hash_set": "node_hash_set",
    },
    "debugging": {
        "failure_signal_handler": "failure_signal_handler",
        "stacktrace": "stacktrace",
        "symbolize": "symbolize",
    },
    "flags": {
        "commandlineflag": "flags_commandlineflag",
        "config": "flags_config",
        "flag": "flags",
        "marshalling": "flags_marshalling",
        "parse": "flags_parse",
        "reflection": "flags_reflection",
        "usage": "flags_usage",
    },
    "functional": {
        "any_invocable": "any_invocable",
        "bind_front": "bind_front",
        "function_ref": "function_ref",
    },
    "hash": {"hash": "hash"},
    "memory": {"memory": "memory"},
    "meta": {"type_traits": "type_traits"},
    "numeric": {"bits": "bits", "int128": "int128"},
    "random": {"bit_gen_ref": "random_bit_gen_ref", "distributions": "random_distributions", "random": "random_random"},
    "status": {"status": "status", "statusor": "statusor"},
    "strings": {"cord": "cord", "str_format": "str_format", "strings": "strings"},
    "synchronization": {"synchronization": "synchronization"},
    "time": {"time": "time"},
    "types": {
        "any": "any",
        "compare": "compare",
        "optional": "optional",
        "span": "span",
        "variant": "variant",
    },
    "utility": {"utility": "utility"},
}

_PREFIX = "absl_"

def _read_component(ctx, path):
    """Returns struct(requires, library, linkopts) of one pkg-config file."""
    requires, library, linkopts = [], None, []
    for line in ctx.read(path).split("\n"):
        if line.startswith("Requires:"):
            # "absl_base = 20220623, absl_status = 20220623"
            entries = [entry.strip().split(" ")[0] for entry in line[len("Requires:"):].split(",")]
            requires = [entry[len(_PREFIX):] for entry in entries if entry.startswith(_PREFIX)]
        elif line.startswith("Libs:"):
            for word in line[len("Libs:"):].split(" "):
                if word.startswith("-l" + _PREFIX):
                    library = word[2:]
                elif word.startswith("-l") or word.startswith("-Wl,"):
                    linkopts.append(word)
    return struct(requires = requires, library = library, linkopts = linkopts)

def _system_absl_impl(ctx):
    package = ctx.attr.package
    folder = None
    for candidate in LIBRARY_DIRS:
        if ctx.path(candidate + "/pkgconfig/absl_base.pc").exists:
            folder = ctx.path(candidate + "/pkgconfig")
            break
    if not folder:
        fail_missing("Abseil", package)

    build = ['package(default_visibility = ["//:__subpackages__"])\n']
    components = {}
    for path in folder.readdir():
        if not path.basename.startswith(_PREFIX) or not path.basename.endswith(".pc"):
            continue
        name = path.basename[len(_PREFIX):-len(".pc")]
        component = _read_component(ctx, path)
        srcs, linkopts = [], component.linkopts
        if component.library:
            place = find_library(ctx, component.library, LIBRARY_DIRS)
            if not place.archive and not place.shared:
                fail_missing("the library lib{}".format(component.library), package)
            parts = link_library(ctx, component.library, place)
            srcs, linkopts = parts.srcs, parts.linkopts + component.linkopts
        components[name] = """
cc_library(
    name = "{}",
    srcs = {},
    linkopts = {},
    deps = {},
)
""".format(name, srcs, linkopts, [":" + r for r in component.requires])
    build += [components[name] for name in sorted(components)]
    ctx.file("BUILD.bazel", "".join(build))

    for directory, targets in _LABELS.items():
        aliases = ['package(default_visibility = ["//visibility:public"])\n']
        for target, component in sorted(targets.items()):
            # A component that this version lacks is left out: whoever names it gets Bazel's "no such target".
            if component in components:
                aliases.append('\nalias(\n    name = "{}",\n    actual = "//:{}",\n)\n'.format(target, component))
        ctx.file("absl/{}/BUILD.bazel".format(directory), "".join(aliases))

system_absl = repository_rule(
    implementation = _system_absl_impl,
    attrs = {"package": attr.string(mandatory = True, doc = "The Debian package to install.")},
    configure = True,
    local = True,
)
