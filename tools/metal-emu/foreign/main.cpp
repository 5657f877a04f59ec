// Foreign kernels in the emulator: the proof that the dialect it reads is Metal's. Paths are arguments; nothing
// foreign is part of this repository.
#include <CLI/CLI.hpp>

#include <cstdio>

#include "foreign/llama.h"
#include "foreign/mlx.h"
#include "foreign/survey.h"

namespace metal_emu::foreign {
namespace {

bool run_llama(Harness& h, const std::string& folder) {
    h.root = folder + "/kernels";
    h.folders = {folder, folder + "/.."};
    h.defines = {"GGML_METAL_HAS_BF16=1"};
    const Header header(folder + "/ggml-metal-impl.h");
    const Llama l{h, header};
    llama_rows(l);
    llama_products(l);
    llama_attention(l);
    h.forget();
    h.defines.push_back("GGML_METAL_HAS_TENSOR=1");
    llama_tensor_products(l);
    return h.summary();
}

bool run_mlx(Harness& h, const std::string& folder) {
    h.folders = {folder};
    h.cxx17 = true;
    mlx_quantised(h);
    mlx_rows(h);
    mlx_products(h);
    mlx_attention(h);
    mlx_tensors(h);
    mlx_tensor_attention(h);
    return h.summary();
}

int command(int argc, char** argv) {
    CLI::App app("Compiles and runs Metal kernels of other projects, from folders on this machine.\n"
                 "Exit status: 0 as known, 1 something else than what is known, 2 wrong use.");
    app.require_subcommand(1);
    SurveyOptions options;
    std::string folder, filter;
    CLI::App& surveys = *app.add_subcommand("survey", "compile every kernel of .metal files, without and with address spaces");
    surveys.add_option("files", options.files, "MSL sources")->required()->check(CLI::ExistingFile);
    surveys.add_option("-I", options.folders, "folder for #include")->type_name("DIR")->allow_extra_args(false);
    surveys.add_option("-D", options.defines, "macro")->type_name("NAME[=VALUE]")->allow_extra_args(false);
    surveys.add_flag("--c++17", options.cxx17, "C++17 instead of C++14");
    surveys.add_flag("--each", options.each, "kernels that fail together with address spaces, one by one");
    CLI::App& llama = *app.add_subcommand("llama", "run cases of llama.cpp's kernels");
    CLI::App& mlx = *app.add_subcommand("mlx", "run cases of MLX's kernels");
    llama.add_option("folder", folder, "ggml/src/ggml-metal of a checkout")->required()->check(CLI::ExistingDirectory);
    mlx.add_option("folder", folder, "the include folder of MLX's Python package")->required()->check(CLI::ExistingDirectory);
    for (CLI::App* c : {&llama, &mlx}) c->add_option("--filter", filter, "only cases with this in their names");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    std::string reason;
    if (!compiler_available(&reason)) throw std::runtime_error(reason);
    if (surveys.parsed()) return survey(options) ? 0 : 1;
    Harness h(filter);
    return (llama.parsed() ? run_llama(h, folder) : run_mlx(h, folder)) ? 0 : 1;
}

}  // namespace
}  // namespace metal_emu::foreign

int main(int argc, char** argv) {
    try {
        return metal_emu::foreign::command(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        return 2;
    }
}
