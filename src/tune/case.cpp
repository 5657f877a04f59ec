#include "tune/case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "values.h"

namespace forge::tune {
namespace {

std::vector<float> normal(std::size_t count, float scale, DType type, std::mt19937& random) {
    std::normal_distribution<float> draw(0, scale);
    std::vector<float> values(count);
    for (float& v : values) v = rounded(type, draw(random));
    return values;
}

// Records of [ids][weights]: different experts, all of them chosen by some row sooner or later.
std::vector<float> routes(int rows, int experts, int per_token, std::mt19937& random) {
    std::vector<float> words;
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(experts));
    std::iota(ids.begin(), ids.end(), 0u);
    std::uniform_real_distribution<float> weight(0.25f, 1.0f);
    for (int row = 0; row < rows; ++row) {
        for (std::size_t k = 0; k < static_cast<std::size_t>(per_token); ++k)
            std::swap(ids[k], ids[k + random() % (ids.size() - k)]);
        for (int k = 0; k < per_token; ++k) words.push_back(std::bit_cast<float>(ids[static_cast<std::size_t>(k)]));
        for (int k = 0; k < per_token; ++k) words.push_back(weight(random));
    }
    return words;
}

// Rows of an input: of the step, or of its outputs.
int rows_of(const Case& c, const Part& part, ValueId value) {
    return part.plan.values[static_cast<std::size_t>(value)].rows == RowSpace::outputs ? c.rows : static_cast<int>(c.slots.size());
}

bool outputs_of_tokens(const Part& part) {
    if (!part.of_outputs()) return false;
    return std::any_of(part.inputs.begin(), part.inputs.end(), [&](const PartInput& i) { return part.plan.values[static_cast<std::size_t>(i.value)].rows == RowSpace::tokens; });
}

std::int64_t token_limit(const Part& part, const Subject& subject) {
    std::int64_t limit = 1 << 20;
    for (const Op& op : part.plan.ops)
        if (const auto* o = std::get_if<EmbedOp>(&op.attributes)) limit = std::min(limit, subject.weights[static_cast<std::size_t>(o->table)].rows);
    return limit;
}

}  // namespace

StepRows Case::step(std::uint64_t serial) const {
    StepRows s;
    s.m = static_cast<int>(slots.size());
    s.tokens = tokens.data();
    s.slots = slots.data();
    s.positions = positions.data();
    s.outputs = static_cast<int>(output_rows.size());
    s.output_rows = output_rows.data();
    s.serial = serial;
    return s;
}

Case Case::some(const Part& part, std::span<const int> wanted) const {
    Case c;
    c.rows = static_cast<int>(wanted.size());
    c.seed = seed;
    std::copy(std::begin(filled), std::end(filled), std::begin(c.filled));
    const bool mixed = outputs_of_tokens(part);
    for (const int row : wanted) {
        const auto at = static_cast<std::size_t>(mixed ? output_rows[static_cast<std::size_t>(row)] : row);
        c.tokens.push_back(tokens[at]);
        c.slots.push_back(slots[at]);
        c.positions.push_back(positions[at]);
        if (!output_rows.empty()) c.output_rows.push_back(static_cast<std::int32_t>(c.output_rows.size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const ValueId value = part.inputs[i].value;
        const auto cols = static_cast<std::size_t>(part.plan.values[static_cast<std::size_t>(value)].cols);
        const bool of_tokens = mixed && part.plan.values[static_cast<std::size_t>(value)].rows == RowSpace::tokens;
        std::vector<float> values;
        for (const int row : wanted) {
            const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(of_tokens ? output_rows[static_cast<std::size_t>(row)] : row) * cols);
            values.insert(values.end(), inputs[i].begin() + from, inputs[i].begin() + from + static_cast<std::ptrdiff_t>(cols));
        }
        c.inputs.push_back(std::move(values));
    }
    return c;
}

Case make_case(const Part& part, const Subject& subject, int max_rows, int rows, unsigned seed, int depth) {
    Case c;
    c.rows = rows;
    c.seed = seed;
    std::mt19937 random(seed);
    const int m = outputs_of_tokens(part) ? std::min(max_rows, 2 * rows) : rows;
    for (int i = 0; part.of_outputs() && i < rows; ++i) c.output_rows.push_back(m >= 2 * rows ? 2 * i + 1 : m - rows + i);
    const std::int64_t limit = token_limit(part, subject);
    // Two sequences, the second nearer to its beginning.
    const int first = (m + 1) / 2;
    for (int i = 0; i < m; ++i) {
        const int slot = i < first ? 0 : 1, count = slot == 0 ? first : m - first;
        const int before = std::max(0, std::min(slot == 0 ? depth : depth / 16, subject.capacity - count));
        c.tokens.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(random()) % limit));
        c.slots.push_back(slot);
        c.positions.push_back(before + (slot == 0 ? i : i - first));
        c.filled[slot] = c.positions.back() + 1;
    }
    for (const PartInput& input : part.inputs) {
        const Value& v = part.plan.values[static_cast<std::size_t>(input.value)];
        const int count = rows_of(c, part, input.value);
        if (input.kind == InputKind::route) c.inputs.push_back(routes(count, part.experts(), part.per_token(), random));
        else c.inputs.push_back(normal(static_cast<std::size_t>(count) * static_cast<std::size_t>(v.cols), input.kind == InputKind::residual ? 1.0f / 16 : 1.0f,
                                       v.type == ValueType::f32 ? DType::f32 : subject.type, random));
    }
    return c;
}

std::shared_ptr<Cache> make_cache(Backend& backend, const Part& part, const Subject& subject) {
    std::vector<CacheLayer> layers(subject.layers.size());
    for (const int used : part.layers) layers[static_cast<std::size_t>(used)] = subject.layers[static_cast<std::size_t>(used)];
    return backend.create_cache(layers, kSlots, subject.capacity, subject.type);
}

void fill_cache(Cache& cache, const Part& part, const Subject& subject, const Case& c) {
    std::mt19937 random(c.seed + 1);
    if (part.kv_layer >= 0) {
        const CacheLayer& l = subject.layers[static_cast<std::size_t>(part.kv_layer)];
        const std::size_t width = static_cast<std::size_t>(l.head_dim), stride = width * size_of(subject.type);
        const auto write = [&](int slot, int first, int last, bool poison) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(last - first) * stride, std::byte{0xff});   // a NaN in every type
            for (const bool values : {false, true})
                for (int head = 0; head < l.n_kv_heads; ++head) {
                    if (!poison) encode(subject.type, normal(static_cast<std::size_t>(last - first) * width, 1, subject.type, random), bytes.data());
                    cache.write_run(part.kv_layer, values, slot, head, first, last, bytes.data(), stride);
                }
        };
        for (int slot = 0; slot < kSlots && part.reads_keys; ++slot)
            if (c.filled[slot] > 0) write(slot, 0, c.filled[slot], false);
        for (std::size_t i = 0; i < c.slots.size() && part.writes_keys; ++i) write(c.slots[i], c.positions[i], c.positions[i] + 1, true);   // which the part must write
    }
    if (part.state_layer >= 0) {
        const CacheLayer& l = subject.layers[static_cast<std::size_t>(part.state_layer)];
        const std::size_t conv = static_cast<std::size_t>(std::max(0, l.conv_kernel - 1)) * static_cast<std::size_t>(l.conv_channels());
        std::vector<std::byte> bytes(cache.state_bytes());
        const std::size_t conv_bytes = conv * size_of(subject.type);
        for (int slot = 0; slot < kSlots; ++slot) {
            encode(subject.type, normal(conv, 1, subject.type, random), bytes.data());
            encode(DType::f32, normal((bytes.size() - conv_bytes) / 4, 0.1f, DType::f32, random), bytes.data() + conv_bytes);
            cache.write_state(slot, bytes.data());
        }
    }
}

}  // namespace forge::tune
