#include "base/dtype.h"

#include <array>

namespace forge {
namespace {
struct Row { std::string_view name; std::size_t size; };
constexpr std::array<Row, 15> rows{{{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f64", 8}, {"i8", 1}, {"u8", 1},
    {"i16", 2}, {"u16", 2}, {"i32", 4}, {"u32", 4}, {"i64", 8}, {"u64", 8}, {"bool", 1}, {"f8_e4m3", 1},
    {"f8_e5m2", 1}}};
}  // namespace

std::size_t size_of(DType type) { return rows[static_cast<std::size_t>(type)].size; }
std::string_view name_of(DType type) { return rows[static_cast<std::size_t>(type)].name; }

}  // namespace forge
