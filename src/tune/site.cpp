#include "tune/site.h"

#include <fmt/format.h>

#include <string_view>

namespace forge::tune {
namespace {

// What differs from layer to layer without changing a kernel.
bool of_the_layer(std::string_view constant) { return constant == "input_tag" || constant == "kv_layer" || constant == "state_layer"; }

}  // namespace

std::string site_name(const Program& program, const Launch& launch, std::span<const Weight> weights) {
    std::string shape = launch.kernel, details = fmt::format("{}, {} rows", name_of(program.type), program.max_rows);
    for (const Operand& o : launch.operands) {
        if (o.name == "untaken") continue;   // of steps of one row; a part has none
        if (o.buffer.space != Space::weight) {
            details += fmt::format(", {}", o.name);
            continue;
        }
        const Weight& w = weights[static_cast<std::size_t>(o.buffer.index)];
        if (w.rows > 1 && o.name != "conv_weight") shape += fmt::format(" {}x{} {}", w.rows, w.cols, describe(w.format));
        else shape += fmt::format(" {}", o.name == "norm_weight" ? "norm" : o.name == "conv_weight" ? "conv" : o.name);
        details += fmt::format(", {} {}x{}{}{}", o.name, w.rows, w.cols, w.tiled ? " tiled" : "", w.codes.stride % 16 == 0 ? "" : " unaligned");
    }
    if (const double heads = launch.number("n_heads", 0); heads > 0)
        shape += fmt::format(" {}:{} heads of {}{}", heads, launch.number("n_kv_heads", 0), launch.number("head_dim", 0),
                             launch.number("window", 0) > 0 ? fmt::format(" window {}", launch.number("window", 0)) : "");
    else if (const double width = launch.number("width", 0); width > 0) shape += fmt::format(" {}", width);
    for (const Constant& c : launch.constants)
        if (!of_the_layer(c.name)) details += fmt::format(", {}={:.9g}", c.name, c.value);
    return shape + " | " + details;
}

std::string short_name(const std::string& site) { return site.substr(0, site.find(" | ")); }

std::string shape_name(const std::string& site) {
    const std::string name = short_name(site);
    const std::size_t space = name.find(' ');
    return space == std::string::npos ? "" : name.substr(space + 1);
}

}  // namespace forge::tune
