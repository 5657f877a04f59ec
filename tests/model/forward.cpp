#include "forward.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace forge::test {
namespace {

using Row = std::vector<double>;

class Forward {
  public:
    explicit Forward(const BoundModel& model) : model_(model), spec_(model.spec) {}

    std::vector<double> run(const std::vector<int>& ids) {
        std::vector<double> logits;
        keys_.resize(spec_.layers.size());
        values_.resize(spec_.layers.size());
        for (std::size_t position = 0; position < ids.size(); ++position) {
            Row x = row_of(spec_.embed, ids[position]);
            for (double& value : x) value *= spec_.embed_scale;
            for (const LayerSpec& layer : spec_.layers) step(layer, x, position);
            Row out = product(spec_.head, norm(x, spec_.final_norm, spec_.norm));
            if (spec_.final_softcap > 0)
                for (double& value : out) value = spec_.final_softcap * std::tanh(value / spec_.final_softcap);
            logits.insert(logits.end(), out.begin(), out.end());
        }
        return logits;
    }

  private:
    const Weight& weight(WeightId id) const { return model_.weights.at(static_cast<std::size_t>(id)); }

    // All rows of a weight, decoded once.
    const Row& matrix(WeightId id) const {
        Row& rows = decoded_[id];
        const Weight& w = weight(id);
        std::vector<float> values(static_cast<std::size_t>(w.cols));
        for (std::int64_t r = 0; rows.size() < static_cast<std::size_t>(w.rows * w.cols); ++r) {
            decode_row(w, r, values.data());
            rows.insert(rows.end(), values.begin(), values.end());
        }
        return rows;
    }

    Row row_of(WeightId id, std::int64_t row) const {
        const auto first = matrix(id).begin() + static_cast<std::ptrdiff_t>(row * weight(id).cols);
        return Row(first, first + static_cast<std::ptrdiff_t>(weight(id).cols));
    }

    Row product(WeightId id, const Row& x) const {
        if (static_cast<std::int64_t>(x.size()) != weight(id).cols) throw std::logic_error("widths differ");
        Row out;
        const double* w = matrix(id).data();
        for (std::int64_t r = 0; r < weight(id).rows; ++r) {
            double sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) sum += *w++ * x[i];
            out.push_back(sum);
        }
        return out;
    }

    Row linear(const LayerSpec& layer, Role role, Role bias, const Row& x) const {
        Row out = product(layer[role], x);
        if (layer[bias] >= 0) {
            const Row b = row_of(layer[bias], 0);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += b.at(i);
        }
        return out;
    }

    Row norm(const Row& x, WeightId id, const NormSpec& kind) const {
        const Row w = row_of(id, 0);
        double squares = 0;
        for (const double value : x) squares += value * value;
        const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kind.eps);
        Row out;
        for (std::size_t i = 0; i < x.size(); ++i)
            out.push_back(x[i] * scale * (kind.kind == NormKind::one_plus ? 1 + w.at(i) : w.at(i)));
        return out;
    }

    void rotate(Row& x, std::size_t first, const RopeSpec& rope, std::size_t position) const {
        const std::size_t half = rope.inv_freq.size();
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(position) * static_cast<double>(rope.inv_freq[i]);
            const double c = std::cos(angle) * rope.scale, s = std::sin(angle) * rope.scale;
            const double a = x[first + i], b = x[first + half + i];
            x[first + i] = a * c - b * s;
            x[first + half + i] = b * c + a * s;
        }
    }

    // Norm per head, if there is one, and rotation.
    void prepare(Row& x, int heads, const LayerSpec& layer, Role norm_role, std::size_t position) const {
        const AttentionSpec& a = layer.attention;
        const auto width = static_cast<std::size_t>(a.head_dim);
        for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
            if (a.qk_norm) {
                const auto begin = x.begin() + static_cast<std::ptrdiff_t>(h * width);
                const Row head(begin, begin + static_cast<std::ptrdiff_t>(width));
                const Row normed = norm(head, layer[norm_role], spec_.qk_norm);
                std::copy(normed.begin(), normed.end(), begin);
            }
            rotate(x, h * width, spec_.ropes.at(static_cast<std::size_t>(a.rope)), position);
        }
    }

    Row attention(const LayerSpec& layer, const Row& x, std::size_t position) {
        const AttentionSpec& a = layer.attention;
        Row q = linear(layer, Role::attn_q, Role::attn_q_bias, x);
        Row k = linear(layer, Role::attn_k, Role::attn_k_bias, x);
        prepare(q, a.n_heads, layer, Role::attn_q_norm, position);
        prepare(k, a.n_kv_heads, layer, Role::attn_k_norm, position);
        auto& keys = keys_.at(static_cast<std::size_t>(a.kv_layer));
        auto& values = values_.at(static_cast<std::size_t>(a.kv_layer));
        keys.push_back(k);
        values.push_back(linear(layer, Role::attn_v, Role::attn_v_bias, x));
        const auto width = static_cast<std::size_t>(a.head_dim);
        const std::size_t first = a.window > 0 && position + 1 > static_cast<std::size_t>(a.window) ? position + 1 - static_cast<std::size_t>(a.window) : 0;
        Row out(q.size());
        for (std::size_t h = 0; h < static_cast<std::size_t>(a.n_heads); ++h) {
            const std::size_t source = h / static_cast<std::size_t>(a.n_heads / a.n_kv_heads) * width;
            Row scores;
            for (std::size_t j = first; j <= position; ++j) {
                double score = 0;
                for (std::size_t i = 0; i < width; ++i) score += q[h * width + i] * keys[j][source + i];
                score *= a.scale;
                scores.push_back(a.softcap > 0 ? a.softcap * std::tanh(score / a.softcap) : score);
            }
            const double top = *std::max_element(scores.begin(), scores.end());
            double sum = 0;
            for (double& score : scores) sum += score = std::exp(score - top);
            for (std::size_t j = first; j <= position; ++j)
                for (std::size_t i = 0; i < width; ++i) out[h * width + i] += scores[j - first] / sum * values[j][source + i];
        }
        return linear(layer, Role::attn_o, Role::attn_o_bias, out);
    }

    static double activate(Activation kind, double x) {
        if (kind == Activation::silu) return x / (1 + std::exp(-x));
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }

    Row feed_forward(const LayerSpec& layer, const Row& x) const {
        Row gate = linear(layer, Role::ffn_gate, Role::ffn_gate_bias, x);
        const Row up = linear(layer, Role::ffn_up, Role::ffn_up_bias, x);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(layer.feed_forward.activation, gate[i]) * up[i];
        return linear(layer, Role::ffn_down, Role::ffn_down_bias, gate);
    }

    void add(Row& x, Row part, const LayerSpec& layer, Role post_norm) const {
        if (layer[post_norm] >= 0) part = norm(part, layer[post_norm], spec_.norm);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += part.at(i);
    }

    void step(const LayerSpec& layer, Row& x, std::size_t position) {
        add(x, attention(layer, norm(x, layer[Role::attn_norm], spec_.norm), position), layer, Role::attn_post_norm);
        add(x, feed_forward(layer, norm(x, layer[Role::ffn_norm], spec_.norm)), layer, Role::ffn_post_norm);
    }

    const BoundModel& model_;
    const ModelSpec& spec_;
    std::vector<std::vector<Row>> keys_, values_;
    mutable std::map<WeightId, Row> decoded_;
};

}  // namespace

std::vector<double> forward(const BoundModel& model, const std::vector<int>& ids) { return Forward(model).run(ids); }

}  // namespace forge::test
