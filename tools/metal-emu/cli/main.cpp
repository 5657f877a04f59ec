// metal-emu check FILE.metal ...     compile every kernel, with address spaces
// metal-emu run FILE.metal KERNEL ... run one with described buffers
#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "cli/buffers.h"
#include "metal_emu/compile.h"

namespace metal_emu {
namespace {

struct Source {
    std::string path;
    std::vector<std::string> folders, defines;
    bool cxx17 = false;

    void add_options(CLI::App& command) {
        command.add_option("file", path, "MSL source")->required()->check(CLI::ExistingFile);
        command.add_option("-I", folders, "folder for #include")->type_name("DIR")->allow_extra_args(false);
        command.add_option("-D", defines, "macro")->type_name("NAME[=VALUE]")->allow_extra_args(false);
        command.add_flag("--c++17", cxx17, "C++17 instead of C++14");
    }
    // Files without includes or macros of their own keep their text, and with it exact columns.
    Library load() const {
        std::ifstream file(path);
        std::stringstream text;
        text << file.rdbuf();
        std::string error, source = text.str();
        const bool plain = folders.empty() && defines.empty() && source.find("#include \"") == std::string::npos;
        if (!plain) source = preprocess(path, folders, defines, &error);
        if (!error.empty()) throw std::runtime_error(error);
        Library library = parse(source, &error);
        if (!error.empty()) throw std::runtime_error(path + ": " + error);
        library.preprocessed = !plain;
        library.file = path.substr(path.rfind('/') + 1);
        return library;
    }
};

int check(const Source& source) {
    const Library library = source.load();
    if (library.functions.empty()) throw std::runtime_error(source.path + " has no kernel");
    CompileOptions options;
    options.syntax_only = true;
    options.cxx17 = source.cxx17;
    std::vector<FunctionConstant> constants = declared_constants(library.source);
    for (FunctionConstant& c : constants)
        if (c.type != "bool") c.value = "4";   // some value: other constants may divide by it
    const Compiled compiled = compile(library, {}, constants, options);
    std::fputs(compiled.log.c_str(), stderr);
    if (!compiled.ok) return 1;
    int warnings = 0;
    if (!library.preprocessed)
        for (const std::string& line : unqualified(library)) {
            std::fprintf(stderr, "%s: no address space, which Metal demands\n", line.c_str());
            warnings++;
        }
    for (const Function& f : library.functions) std::printf("%s: %zu parameters\n", f.name.c_str(), f.parameters.size());
    return warnings ? 1 : 0;
}

struct RunOptions {
    std::string kernel;
    std::vector<std::uint32_t> grid{1, 1, 1}, threads{32, 1, 1};
    std::vector<std::string> buffers, threadgroup, constants, show;
    bool checked = false;
    std::uint64_t seed = 0;
    int workers = 1;
};

int run_kernel(const Source& source, const RunOptions& o) {
    const Library library = source.load();
    CompileOptions options;
    options.check = o.checked;
    options.cxx17 = source.cxx17;
    options.address_spaces = !o.checked;
    std::vector<FunctionConstant> constants;
    for (const std::string& c : o.constants) {
        const auto eq = c.find('=');
        if (eq == std::string::npos) throw std::runtime_error("--constant wants INDEX=VALUE, not '" + c + "'");
        constants.push_back({std::stoi(c.substr(0, eq)), "", "", c.substr(eq + 1)});
    }
    const Compiled compiled = compile(library, {o.kernel}, constants, options);
    std::fputs(compiled.log.c_str(), stderr);
    if (!compiled.ok) return 1;
    std::vector<DescribedBuffer> buffers;
    for (const std::string& b : o.buffers) buffers.push_back(describe_buffer(b));
    Launch launch;
    launch.entry = compiled.entries.begin()->second;
    launch.name = o.kernel.c_str();
    launch.image_low = compiled.image_low;
    launch.image_high = compiled.image_high;
    launch.check = o.checked;
    launch.seed = o.seed;
    launch.workers = o.workers;
    for (std::size_t i = 0; i < 3; i++) {
        if (i < o.grid.size()) launch.grid[i] = o.grid[i];
        if (i < o.threads.size()) launch.threads[i] = o.threads[i];
    }
    if (launch.threads[0] * launch.threads[1] * launch.threads[2] > 1024) throw std::runtime_error("a threadgroup has at most 1024 threads");
    for (DescribedBuffer& b : buffers) {
        launch.buffers[b.index] = b.memory.data();
        launch.bytes[b.index] = b.bytes;
    }
    for (const std::string& t : o.threadgroup) {
        const auto [index, bytes] = index_and_number(t);
        if (index >= kThreadgroupArguments || bytes > kThreadgroupMemory) throw std::runtime_error("--threadgroup wants INDEX=BYTES with an index below 8 and at most 32768 bytes");
        launch.threadgroup_bytes[index] = bytes;
    }
    for (const Function& f : library.functions) {
        if (f.name != o.kernel) continue;
        for (const Parameter& p : f.parameters) {
            if (p.attribute != "buffer") continue;
            if (p.index >= kBuffers || !launch.buffers[p.index])
                throw std::runtime_error("no buffer is bound at index " + std::to_string(p.index) + " (" + p.name + ")");
            launch.read_only[p.index] = p.type.find("constant") != std::string::npos || p.type.find("const ") != std::string::npos;
        }
    }
    const std::vector<std::string> findings = run(launch);
    for (const std::string& f : findings) std::fprintf(stderr, "finding: %s\n", f.c_str());
    for (const std::string& s : o.show) {
        const auto [index, count] = index_and_number(s);
        bool known = false;
        for (const DescribedBuffer& b : buffers) {
            if (b.index != index) continue;
            known = true;
            std::printf("%s\n", values_of(b, count).c_str());
        }
        if (!known) throw std::runtime_error("--show names buffer " + std::to_string(index) + ", which is not bound");
    }
    return findings.empty() ? 0 : 1;
}

int command(int argc, char** argv) {
    CLI::App app("Type-checks and runs Metal kernels on this CPU, thread by thread.");
    app.require_subcommand(1);
    Source source;
    RunOptions options;
    CLI::App& checks = *app.add_subcommand("check", "compile every kernel of a file, with address spaces");
    source.add_options(checks);
    CLI::App& runs = *app.add_subcommand("run", "run one kernel");
    source.add_options(runs);
    runs.add_option("kernel", options.kernel, "its name")->required();
    runs.add_option("--grid", options.grid, "threadgroups: X or X,Y,Z")->delimiter(',');
    runs.add_option("--threads", options.threads, "threads of a threadgroup: X or X,Y,Z")->delimiter(',');
    runs.add_option("-b,--buffer", options.buffers, "INDEX=TYPE*COUNT[:zero|ones|iota|random|nan|@FILE] or INDEX=TYPE:V,V,... with TYPE one of f32 f16 bf16 u32 i32 u16 u8");
    runs.add_option("-t,--threadgroup", options.threadgroup, "INDEX=BYTES of threadgroup memory");
    runs.add_option("--constant", options.constants, "function constant INDEX=VALUE");
    runs.add_option("--show", options.show, "INDEX=COUNT: print a buffer's first values afterwards");
    runs.add_flag("--checked", options.checked, "report accesses out of bounds, races, divergence, unwritten reads");
    runs.add_option("--seed", options.seed, "order of lanes, 0 = as numbered");
    runs.add_option("--workers", options.workers, "host threads")->check(CLI::Range(1, 64));
    CLI11_PARSE(app, argc, argv);
    std::string reason;
    if (!compiler_available(&reason)) throw std::runtime_error(reason);
    return checks.parsed() ? check(source) : run_kernel(source, options);
}

}  // namespace
}  // namespace metal_emu

int main(int argc, char** argv) {
    try {
        return metal_emu::command(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        return 2;
    }
}
