// metal-emu check FILE.metal ...     compile every kernel, with address spaces
// metal-emu run FILE.metal KERNEL ... run one with described buffers
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "cli/buffers.h"
#include "metal_emu/compile.h"
#include "metal_emu/touched.h"

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

// A line a kernel: what must be bound to run it.
void print(const Function& f) {
    std::string text;
    for (const Parameter& p : f.parameters) {
        const bool bound = p.attribute == "buffer" || p.attribute == "threadgroup";
        text += (text.empty() ? "" : ", ") + p.type + " " + p.name + (bound ? " [[" + p.attribute + "(" + std::to_string(p.index) + ")]]" : "");
    }
    std::printf("%s(%s)\n", f.name.c_str(), text.c_str());
}

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
    for (const Function& f : library.functions) print(f);
    return warnings ? 1 : 0;
}

struct RunOptions {
    std::string kernel;
    std::vector<std::uint32_t> grid{1, 1, 1}, threads{32, 1, 1};
    std::vector<std::string> buffers, threadgroup, constants, show;
    bool checked = false, touched = false, zero_tensors = false;
    std::uint64_t seed = 0;
    int workers = 1;
    std::string profile = "m1";
};

Profile profile_of(const std::string& name) { return name == "m5" ? Profile::m5 : name == "m3" ? Profile::m3 : Profile::m1; }

const Function& find_kernel(const Library& library, const std::string& name) {
    std::string known;
    for (const Function& f : library.functions) {
        if (f.name == name) return f;
        known += (known.empty() ? "" : ", ") + f.name;
    }
    throw std::runtime_error("there is no kernel " + name + "; the file has " + (known.empty() ? "none" : known));
}

// Kernels take their constants at these indices.
void check_constants(const Library& library, const std::vector<FunctionConstant>& given) {
    for (const FunctionConstant& g : given) {
        bool known = false;
        for (const FunctionConstant& c : declared_constants(library.source)) known = known || c.index == g.index;
        if (!known) throw std::runtime_error("the file has no function constant of index " + std::to_string(g.index));
    }
}


int run_kernel(const Source& source, const RunOptions& o) {
    const Library library = source.load();
    CompileOptions options;
    options.check = o.checked || o.touched;
    options.cxx17 = source.cxx17;
    options.address_spaces = !options.check;
    options.profile = profile_of(o.profile);
    options.zero_tensors = o.zero_tensors;
    const Function& function = find_kernel(library, o.kernel);
    std::vector<FunctionConstant> constants;
    for (const std::string& c : o.constants) {
        const auto eq = c.find('=');
        if (eq == std::string::npos) throw std::runtime_error("--constant wants INDEX=VALUE, not '" + c + "'");
        constants.push_back({std::stoi(c.substr(0, eq)), "", "", c.substr(eq + 1)});
    }
    check_constants(library, constants);
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
    const std::uint64_t group = std::uint64_t{launch.threads[0]} * launch.threads[1] * launch.threads[2];
    if (group == 0 || group > 1024) throw std::runtime_error("a threadgroup has from 1 to 1024 threads, not " + std::to_string(group));
    if (std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2] == 0) throw std::runtime_error("the grid is empty");
    for (DescribedBuffer& b : buffers) {
        launch.buffers[b.index] = b.memory.data();
        launch.bytes[b.index] = b.bytes;
        std::copy(b.extents.begin(), b.extents.end(), launch.tensor_shapes[b.index]);
    }
    for (const std::string& t : o.threadgroup) {
        const auto [index, bytes] = index_and_number(t);
        if (index >= kThreadgroupArguments || bytes > kThreadgroupMemory) throw std::runtime_error("--threadgroup wants INDEX=BYTES with an index below 8 and at most 32768 bytes");
        launch.threadgroup_bytes[index] = bytes;
    }
    for (const Parameter& p : function.parameters) {
        if (p.attribute == "threadgroup" && launch.threadgroup_bytes[p.index] == 0)
            throw std::runtime_error("the length of threadgroup memory " + std::to_string(p.index) + " (" + p.name + ") is not given: --threadgroup " + std::to_string(p.index) + "=BYTES");
        if (p.attribute != "buffer") continue;
        const bool optional = !p.condition.empty();
        if (p.index >= kBuffers || (!launch.buffers[p.index] && !optional))
            throw std::runtime_error("no buffer is bound at index " + std::to_string(p.index) + " (" + p.name + "): --buffer " + std::to_string(p.index) + "=TYPE*COUNT");
        if (p.type.find("tensor<") != std::string::npos && launch.tensor_shapes[p.index][0] == 0)
            throw std::runtime_error("buffer " + std::to_string(p.index) + " (" + p.name + ") is a tensor: describe its extents, innermost first, as in " + std::to_string(p.index) + "=f16*64x32");
        launch.read_only[p.index] = p.type.find("constant") != std::string::npos || p.type.find("const ") != std::string::npos;
    }
    if (o.touched) count_touched(true);
    const std::vector<std::string> findings = run(launch);
    for (const std::string& f : findings) std::fprintf(stderr, "finding: %s\n", f.c_str());
    if (o.touched)
        for (const DescribedBuffer& b : buffers) {
            const TouchedBytes t = touched(b.memory.data(), b.bytes);
            std::printf("buffer %d: %llu of %zu bytes read, %llu written\n", b.index, static_cast<unsigned long long>(t.read), b.bytes, static_cast<unsigned long long>(t.written));
        }
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

constexpr const char* kExamples =
    "Examples:\n"
    "  metal-emu check kernels.metal\n"
    "      every kernel compiles; prints what each takes\n"
    "  metal-emu run kernels.metal add --grid 4 --threads 64 -b 0=f32*256:random -b 1=f32*256:iota -b 2=f32*256 --show 2=8\n"
    "      runs 256 threads and prints 8 results\n"
    "  metal-emu run kernels.metal add --checked --seed 7 ...\n"
    "      reports races, accesses out of bounds, divergence and unwritten reads, with lanes in another order\n"
    "  metal-emu run kernels.metal gemm --profile m5 -b 0=f16*64x32:@weights.bin ...\n"
    "      cooperative elements as the M5 places them; buffer 0 is a tensor of rows of 64\n"
    "Exit status: 0 clean, 1 a kernel does not compile or the run has findings, 2 wrong use.";

int command(int argc, char** argv) {
    CLI::App app("Type-checks and runs Metal kernels on this CPU, thread by thread.");
    app.footer(kExamples);
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
    runs.add_option("-b,--buffer", options.buffers, "INDEX=TYPE*COUNT[:zero|ones|iota|random|nan|@FILE] or INDEX=TYPE:V,V,... with TYPE one of f32 f16 bf16 u32 i32 u16 u8; a tensor's COUNT is AxB")->allow_extra_args(false);
    runs.add_option("-t,--threadgroup", options.threadgroup, "INDEX=BYTES of threadgroup memory")->allow_extra_args(false);
    runs.add_option("--constant", options.constants, "function constant INDEX=VALUE")->allow_extra_args(false);
    runs.add_option("--show", options.show, "INDEX=COUNT: print a buffer's first values afterwards")->allow_extra_args(false);
    runs.add_flag("--checked", options.checked, "report accesses out of bounds, races, divergence, unwritten reads");
    runs.add_flag("--touched", options.touched, "print how many bytes of each buffer were read and written, each counted once");
    runs.add_option("--profile", options.profile, "whose placement of matrix and tensor elements: m1, m3 or m5")->check(CLI::IsMember({"m1", "m3", "m5"}));
    runs.add_flag("--zero-tensors", options.zero_tensors, "cooperative tensors begin at 0, not as NaN");
    runs.add_option("--seed", options.seed, "order of lanes, 0 = as numbered");
    runs.add_option("--workers", options.workers, "host threads")->check(CLI::Range(1, 64));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
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
