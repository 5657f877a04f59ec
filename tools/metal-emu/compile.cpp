#include "metal_emu/compile.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include "frontend/translate.h"

namespace metal_emu {
namespace {

std::string environment(const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? value : otherwise;
}

std::string slurp(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string clang() { return environment("METAL_EMU_CLANG", EMU_CLANG); }
std::string shim() { return environment("METAL_EMU_SHIM", EMU_SHIM_DIR); }

// Machine code is kept here; safe to delete at any time.
std::string cache_folder() {
    const std::string folder = environment("METAL_EMU_CACHE", std::filesystem::temp_directory_path() /
                                                                  ("metal-emu-" + std::to_string(getuid())));
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    return folder;
}

// The text of the whole shim, which is part of a cache key.
const std::string& shim_text() {
    static const std::string text = [] {
        std::string all = slurp(shim() + "/metal_stdlib");
        std::vector<std::string> paths;
        for (const auto& file : std::filesystem::directory_iterator(shim() + "/emu"))
            paths.push_back(file.path());
        std::sort(paths.begin(), paths.end());
        for (const std::string& path : paths) all += slurp(path);
        return all;
    }();
    return text;
}

std::string machine_flags() {
#if defined(__x86_64__)
    return " -mavx2 -mfma -mf16c";
#else
    return "";
#endif
}

// The pass skips accesses over 16 bytes and other address spaces, hence no vectoriser and plain pointers.
std::string instrumentation() {
    return " -fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=0 -mllvm "
           "-tsan-instrument-read-before-write=1"
           " -fno-vectorize -fno-slp-vectorize -fno-omit-frame-pointer";
}

// Metal 4's tensors are C++17 and templates with parameters of class types, which clang takes from C++20 on.
bool uses_tensors(const Library& library) {
    return library.source.find("tensor_ops") != std::string::npos || library.source.find("metal_tensor") != std::string::npos;
}

std::string language(const Library& library, const CompileOptions& o) {
    if (uses_tensors(library)) return " -std=c++20 -DEMU_CXX17 -DEMU_TENSOR -D__METAL_VERSION__=400 -Wno-missing-braces";
    if (o.cxx17) return " -std=c++17 -DEMU_CXX17 -D__METAL_VERSION__=320";
    return " -std=c++14 -Werror=c++17-extensions -D__METAL_VERSION__=320";
}

std::string flags(const Library& library, const CompileOptions& o) {
    std::string f =
        "-x c++" + language(library, o) + " -O2 -g1 -fPIC -I " + shim() +
        " -DEMU_MATRIX_LAYOUT=" + std::to_string(static_cast<int>(o.profile)) +
        " -ffp-contract=off -fno-math-errno -fstack-clash-protection" + machine_flags() +
        " -Xclang -ffloat16-excess-precision=none -Xclang -fbfloat16-excess-precision=none"
        " -fvisibility=hidden -fno-exceptions -fno-rtti -nostdinc++ -Wno-unknown-attributes "
        "-Wno-ignored-attributes"
        " -Wno-duplicate-decl-specifier -Wno-unused -Wno-unknown-pragmas -Wno-psabi -Wno-vla-cxx-extension"
        " -Wno-pass-failed";
    if (!library.preprocessed)
        f += " -Werror=double-promotion";  // a foreign text lets half become float silently, as in MSL
    if (o.address_spaces) f += " -DEMU_ADDRESS_SPACES -fenable-matrix";
    if (o.zero_tensors) f += " -DEMU_ZERO_TENSORS";
    if (o.loose_alignment) f += " -fmax-type-align=4";
    if (o.check) f += instrumentation();
    if (o.syntax_only) f += " -fsyntax-only";
    return f + " " + environment("METAL_EMU_CXXFLAGS", "");
}

// Takes address spaces out of LLVM's text after the front end has checked them.
constexpr const char* kStripSpaces =
    R"('{ gsub(/addrspace\([123]\) ?/,""); gsub(/= addrspacecast /,"= bitcast "); )"
    R"(while(match($0,/addrspacecast \(ptr [^ ()]+ to ptr\)/)){ t=substr($0,RSTART,RLENGTH); u=t; sub(/addrspacecast \(ptr /,"",u); sub(/ to ptr\)/,"",u); $0=substr($0,1,RSTART-1) u substr($0,RSTART+RLENGTH); } )"
    R"(if($0 ~ /@llvm\./) gsub(/\.p[123]/,".p0"); if($0 ~ /^declare/){ match($0,/@[A-Za-z0-9_.]+/); k=substr($0,RSTART,RLENGTH); if(seen[k]++) next; } print }')";

// Shell commands that make `base`.so (or check the syntax), with the compiler's words in `base`.log.
std::string commands(const std::string& base, const std::string& options, const CompileOptions& o) {
    const std::string log = base + ".log",
                      link = " && ld.lld-19 -shared " + base + ".o -o " + base + ".so 2>>" + log;
    if (o.syntax_only) return clang() + " " + options + " " + base + ".cpp 2>" + log;
    if (o.check && o.address_spaces)
        return clang() + " " + options + " -Xclang -disable-llvm-passes -S -emit-llvm " + base + ".cpp -o " +
               base + ".ll 2>" + log + " && awk " + kStripSpaces + " " + base + ".ll > " + base +
               ".0.ll && " + clang() + " -x ir -O2 -g1 -fPIC" + machine_flags() + " -ffp-contract=off" +
               instrumentation() + " -Wno-override-module -c " + base + ".0.ll -o " + base + ".o 2>>" + log +
               link;
    return clang() + " " + options + " -c " + base + ".cpp -o " + base + ".o 2>" + log + link;
}

void remove_files(const std::string& base, std::initializer_list<const char*> endings) {
    for (const char* ending : endings) unlink((base + ending).c_str());
}

// Bounds of a loaded image, for reads of its constants.
void find_image(void* handle, Compiled& out) {
    link_map* map = nullptr;
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    struct Range {
        std::uintptr_t low, high;
    } range{map->l_addr, map->l_addr};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& r = *static_cast<Range*>(data);
            for (int k = 0; info->dlpi_addr == r.low && k < info->dlpi_phnum; k++)
                if (info->dlpi_phdr[k].p_type == PT_LOAD)
                    r.high = std::max<std::uintptr_t>(
                        r.high, info->dlpi_addr + info->dlpi_phdr[k].p_vaddr + info->dlpi_phdr[k].p_memsz);
            return 0;
        },
        &range);
    out.image_low = reinterpret_cast<const void*>(range.low);
    out.image_high = reinterpret_cast<const void*>(range.high);
}

}  // namespace

bool compiler_available(std::string* reason) {
    static const bool clang_there = std::system((clang() + " --version >/dev/null 2>&1").c_str()) == 0;
    static const bool linker_there = std::system("ld.lld-19 --version >/dev/null 2>&1") == 0;
    if (reason && !clang_there)
        *reason = clang() + " is not installed; emulated kernels need it (Debian: clang-19)";
    else if (reason && !linker_there)
        *reason = "ld.lld-19 is not installed; emulated kernels need it (Debian: lld-19)";
    return clang_there && linker_there;
}

Compiled compile(const Library& library, const std::vector<std::string>& names,
                 const std::vector<FunctionConstant>& constants, const CompileOptions& options) {
    Compiled out;
    std::vector<const Function*> functions;
    for (const Function& f : library.functions)
        if (names.empty() || std::find(names.begin(), names.end(), f.name) != names.end())
            functions.push_back(&f);
    for (const std::string& name : names)
        if (std::none_of(functions.begin(), functions.end(), [&](auto* f) { return f->name == name; })) {
            out.log = "no kernel " + name;
            return out;
        }
    const std::string text = translate(library, functions, constants, options.address_spaces),
                      opt = flags(library, options);
    char key[32];
    std::snprintf(key, sizeof key, "%016zx", std::hash<std::string>{}(text + opt + clang() + shim_text()));
    const std::string kept = cache_folder() + "/" + key + ".so";
    struct stat status;
    if (options.syntax_only || !options.cache || stat(kept.c_str(), &status) != 0) {
        static std::atomic<int> serial{0};
        const std::string base =
            cache_folder() + "/" + key + "-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
        std::ofstream(base + ".cpp") << text;
        const int failed = std::system(commands(base, opt, options).c_str());
        out.log = slurp(base + ".log");
        if (failed && out.log.empty()) out.log = "the compiler failed without a word";
        if (!failed && !options.syntax_only) rename((base + ".so").c_str(), kept.c_str());
        remove_files(base, {".log", ".o", ".ll", ".0.ll", ".so"});
        if (!std::getenv("METAL_EMU_KEEP")) remove_files(base, {".cpp"});
        if (failed) return out;
    }
    out.ok = true;
    if (options.syntax_only) return out;
    void* handle = dlopen(kept.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        out.log = dlerror();
        out.ok = false;
        return out;
    }
    for (std::size_t k = 0; k < functions.size(); k++)
        out.entries[functions[k]->name] = reinterpret_cast<Entry>(dlsym(handle, entry_name(k).c_str()));
    find_image(handle, out);
    return out;
}

std::vector<std::string> unqualified(const Library& library) {
    std::vector<const Function*> functions;
    CompileOptions options;
    options.syntax_only = true;
    const std::string base = cache_folder() + "/lint-" + std::to_string(getpid());
    std::ofstream(base + ".cpp") << translate(library, functions, {}, true);
    const std::string command = clang() + " " + flags(library, options) + " -w -fms-extensions -DEMU_LINT -Xclang -ast-dump -fno-color-diagnostics " +
                                base + ".cpp >" + base + ".ast 2>/dev/null";
    std::vector<std::string> found;
    if (std::system(command.c_str()) != 0) found.push_back("the source does not compile");
    std::ifstream dump(base + ".ast");
    static const std::regex file("<([^<>:,]+):([0-9]+):"), place("line:([0-9]+):"), type("(Parm)?VarDecl .* ([A-Za-z_0-9]+) '([^']*[*&])'");
    std::string line, current, number = "?";
    for (std::smatch m; std::getline(dump, line);) {
        const std::string range = line.substr(0, line.find('>') + 1);
        if (std::regex_search(range, m, file) && m[1] != "line" && m[1] != "col") {
            current = m[1];
            number = m[2];
        }
        for (std::string rest = line; std::regex_search(rest, m, place); rest = m.suffix()) number = m[1];
        if (current != library.file || line.find("VarDecl") == std::string::npos || !std::regex_search(line, m, type)) continue;
        const std::string t = m[3];
        if (t.find("address_space") != std::string::npos || t.find("__unaligned") != std::string::npos) continue;
        found.push_back(library.file + ":" + number + ": '" + std::string(m[2]) + "' is '" + t + "'");
    }
    remove_files(base, {".cpp", ".ast"});
    return found;
}

std::string preprocess(const std::string& path, const std::vector<std::string>& include_folders,
                       const std::vector<std::string>& defines, std::string* error) {
    const std::string out = cache_folder() + "/preprocessed-" + std::to_string(getpid()) + ".i";
    std::string command =
        clang() +
        " -E -undef -nostdinc -x c++ -D__METAL__=1 -D__METAL_VERSION__=320 -DEMU_PREPROCESSING -I " + shim();
    for (const std::string& folder : include_folders) command += " -I '" + folder + "'";
    for (const std::string& define : defines) command += " -D" + define;
    command += " '" + path + "' -o " + out + " 2>" + out + ".log";
    const int failed = std::system(command.c_str());
    if (failed && error) *error = slurp(out + ".log");
    const std::string text = slurp(out);
    remove_files(out, {"", ".log"});
    return text;
}

}  // namespace metal_emu
