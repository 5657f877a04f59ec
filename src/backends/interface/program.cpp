#include "backends/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace forge {

const Operand* Launch::find(std::string_view operand) const {
    for (const Operand& o : operands)
        if (o.name == operand) return &o;
    return nullptr;
}

const Operand& Launch::operand(std::string_view operand) const {
    if (const Operand* o = find(operand)) return *o;
    fail(ErrorKind::internal, "launch {} has no operand '{}'", kernel, operand);
}

const std::string* Launch::variant(int rows) const {
    for (const VariantChoice& v : variants)
        if (v.rows == rows) return &v.name;
    return nullptr;
}

double Launch::number(std::string_view constant) const {
    for (const Constant& c : constants)
        if (c.name == constant) return c.value;
    fail(ErrorKind::internal, "launch {} has no constant '{}'", kernel, constant);
}

double Launch::number(std::string_view constant, double absent) const {
    for (const Constant& c : constants)
        if (c.name == constant) return c.value;
    return absent;
}

int Program::barriers() const {
    return static_cast<int>(std::count_if(launches.begin(), launches.end(), [](const Launch& l) { return l.barrier; }));
}

std::string print(const Program& program) {
    constexpr std::string_view spaces[] = {"arena", "weight", "table", "keys", "values", "conv_state", "delta_state"};
    std::string s;
    for (const Launch& launch : program.launches) {
        if (launch.barrier) s += "    barrier\n";
        s += fmt::format("{}:", launch.kernel);
        for (const Operand& o : launch.operands) {
            const auto space = spaces[static_cast<int>(o.buffer.space)];
            const char* arrow = o.access == Access::read ? "" : o.access == Access::write ? "=" : "+=";
            if (o.buffer.space == Space::arena) s += fmt::format(" {}{}@{}+{}", o.name, arrow, o.buffer.offset, o.buffer.bytes);
            else s += fmt::format(" {}{}{}[{}]", o.name, arrow, space, o.buffer.index);
        }
        for (const Constant& c : launch.constants) s += fmt::format(" {}={:.7g}", c.name, c.value);
        for (const VariantChoice& v : launch.variants) s += fmt::format(" [{} rows: {}]", v.rows, v.name);
        s += fmt::format("  # {}\n", launch.label);
    }
    s += fmt::format("{} launches, {} barriers, arena {} bytes, up to {} rows\n", program.launches.size(), program.barriers(),
                     program.arena_bytes, program.max_rows);
    return s;
}

}  // namespace forge
