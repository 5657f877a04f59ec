#include "runtime/profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge {
namespace {

// Calls fn(rows, last position) for each run of rows of one sequence.
template <typename Fn>
void each_sequence(const StepRows& step, const Fn& fn) {
    for (int row = 0; row < step.m;) {
        int end = row + 1;
        while (end < step.m && step.slots[end] == step.slots[row]) ++end;
        fn(end - row, step.positions[end - 1]);
        row = end;
    }
}

// Positions that the row at `position` sees.
std::uint64_t seen(int position, int window) {
    return static_cast<std::uint64_t>(window > 0 ? std::min(window, position + 1) : position + 1);
}

class Counter {
  public:
    Counter(const Launch& launch, std::span<const Weight> weights, std::span<const CacheLayer> layers, DType type, const StepRows& step, std::set<std::int32_t>* read)
        : launch_(launch), weights_(weights), layers_(layers), element_(size_of(type)), step_(step), read_(read) {}

    LaunchWork count() {
        rows_ = static_cast<std::uint64_t>(launch_.output_rows ? step_.outputs : step_.m);
        for (const Operand& operand : launch_.operands) count(operand);
        if (launch_.kernel.starts_with("attention") && launch_.kernel != "attention_combine") count_attention();
        return work_;
    }

  private:
    bool is(std::string_view kernel) const { return launch_.kernel == kernel; }

    void count(const Operand& operand) {
        const auto index = static_cast<std::size_t>(operand.buffer.index);
        switch (operand.buffer.space) {
            case Space::arena:
            case Space::table:
                return;
            case Space::weight:
                if (is("pack") || is("expert_pack")) return;
                if (read_ && operand.name == "norm_weight" && !read_->insert(operand.buffer.index).second) return;
                count_weight(operand.name, weights_[index]);
                return;
            case Space::keys:
            case Space::values:
                if (operand.access != Access::read)   // the step's own rows
                    work_.bytes += rows_ * static_cast<std::uint64_t>(layers_[index].n_kv_heads * layers_[index].head_dim) * element_;
                return;
            case Space::conv_state:
            case Space::delta_state:
                each_sequence(step_, [&](int rows, int) { count_state(operand.buffer.space, layers_[index], static_cast<std::uint64_t>(rows)); });
                return;
        }
    }

    void count_weight(std::string_view name, const Weight& w) {
        const auto elements = static_cast<std::uint64_t>(w.rows * w.cols);
        if (is("embed")) {
            work_.bytes += rows_ * (w.bytes() / static_cast<std::uint64_t>(w.rows));
            return;
        }
        const bool matrix = name == "weight" || name == "weight2";
        if (matrix && (is("expert_matvec") || is("expert_gemm"))) {
            const std::uint64_t products = static_cast<std::uint64_t>(launch_.integer("k")) * rows_;
            work_.bytes += w.bytes() * std::min(products, static_cast<std::uint64_t>(launch_.integer("experts")));
            work_.flops += 2 * elements * products;
            return;
        }
        work_.bytes += w.bytes();
        if (matrix && (is("matvec") || is("gemm") || is("conv"))) work_.flops += 2 * elements * rows_;
    }

    // A recurrent state is read and written once a step.
    void count_state(Space space, const CacheLayer& l, std::uint64_t rows) {
        if (space == Space::conv_state) {
            work_.bytes += 2 * static_cast<std::uint64_t>((l.conv_kernel - 1) * l.conv_channels()) * element_;
            return;
        }
        const auto state = static_cast<std::uint64_t>(l.n_v_heads) * static_cast<std::uint64_t>(l.k_dim * l.v_dim);
        work_.bytes += 2 * 4 * state;
        work_.flops += 7 * state * rows;   // decay, read, update, read
    }

    void count_attention() {
        const CacheLayer& l = layers_[static_cast<std::size_t>(launch_.integer("kv_layer"))];
        const auto window = static_cast<int>(launch_.integer("window"));
        const auto head_flops = 4 * static_cast<std::uint64_t>(launch_.integer("n_heads") * launch_.integer("head_dim"));
        each_sequence(step_, [&](int rows, int last) {
            const auto reach = std::min<std::uint64_t>(static_cast<std::uint64_t>(last) + 1, seen(last, window) + static_cast<std::uint64_t>(rows) - 1);
            work_.bytes += 2 * reach * static_cast<std::uint64_t>(l.n_kv_heads * l.head_dim) * element_;
            for (int row = 0; row < rows; ++row) work_.flops += head_flops * seen(last - row, window);
        });
    }

    const Launch& launch_;
    std::span<const Weight> weights_;
    std::span<const CacheLayer> layers_;
    std::uint64_t element_, rows_ = 0;
    const StepRows& step_;
    std::set<std::int32_t>* read_;
    LaunchWork work_;
};

}  // namespace

LaunchWork work_of(const Launch& launch, std::span<const Weight> weights, std::span<const CacheLayer> layers, DType type,
                   const StepRows& step, std::set<std::int32_t>* read) {
    return Counter(launch, weights, layers, type, step, read).count();
}

std::string describe(const StepCounts& counts) {
    std::string text = fmt::format("{} launches with {} barriers, {} stages", counts.launches, counts.stages - 1, counts.stages);
    if (counts.longer > 0) text += fmt::format("; {} launches more from position {} on", counts.longer, counts.short_context);
    if (counts.picks > 0) text += fmt::format("; {} launches more where the device picks the next token", counts.picks);
    return text;
}

}  // namespace forge
