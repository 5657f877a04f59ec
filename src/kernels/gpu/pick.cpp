#include "gpu/builder.h"

namespace forge::gpu {
namespace {

constexpr int kParts = 64, kThreads = 256;

}  // namespace

std::size_t pick_parts_bytes() { return 8 * kParts; }

std::vector<Kernel> pick(const Common& c, std::int64_t vocab) {
    EntryBuilder part("pick_part"), next("pick_next");
    {
        const std::string step = part.read("step", "int"), logits = part.read("logits", "float"), parts = part.write("parts", "float");
        part.statement(fmt::format("fk::pick_part<{}, {}, {}>({}, {}, {}, {}, {}, id);", vocab, kParts, kThreads, step, logits, parts, part.array("values", "float", kThreads / 32),
                                   part.array("ids", "int", kThreads / 32)));
    }
    const std::string step = next.write("step", "int"), parts = next.read("parts", "float");
    next.statement(fmt::format("fk::pick_next<{}, {}>({}, {}, {}, id);", kParts, c.max_rows, step, parts, next.write("picked", "int")));
    return {part.finish(kThreads, {kParts, 0}), next.finish(32, {1, 0})};
}

}  // namespace forge::gpu
