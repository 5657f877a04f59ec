// What a slot's cache holds, read and written: states, rows of keys and values, all of a sequence.
#include "base/error.h"
#include "engine_state.h"

namespace forge {

std::size_t Engine::state_bytes() const { return state_->cache->state_bytes(); }
std::shared_ptr<std::byte[]> Engine::state_memory() const { return state_->cache->state_memory(); }
void Engine::read_state(int slot, std::byte* out) const { state_->cache->read_state(slot, out); }
void Engine::write_state(int slot, const std::byte* in) { state_->cache->write_state(slot, in); }

std::size_t Engine::State::vector_bytes(std::size_t layer) const {
    return size_of(options.dtype) * static_cast<std::size_t>(cache_layers[layer].head_dim);
}

std::size_t Engine::row_bytes() const {
    const State& s = *state_;
    std::size_t total = 0;
    for (std::size_t layer = 0; layer < s.cache_layers.size(); ++layer)
        total += 2 * s.vector_bytes(layer) * static_cast<std::size_t>(s.cache_layers[layer].n_kv_heads);
    return total;
}

void Engine::read_rows(int slot, int first, int last, std::byte* out) const {
    const std::size_t stride = row_bytes();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->read_run(layer, values, slot, head, first, last, out, stride);
        out += size;
    });
}

void Engine::write_rows(int slot, int first, int last, const std::byte* in) {
    const std::size_t stride = row_bytes();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->write_run(layer, values, slot, head, first, last, in, stride);
        in += size;
    });
}

void Engine::copy_rows(int from, int to, int first, int last) {
    std::vector<std::byte> run;
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        run.resize(size * static_cast<std::size_t>(last - first));
        state_->cache->read_run(layer, values, from, head, first, last, run.data(), size);
        state_->cache->write_run(layer, values, to, head, first, last, run.data(), size);
    });
}

std::vector<std::byte> Engine::save_cache(int slot, int length) const {
    std::vector<std::byte> bytes(row_bytes() * static_cast<std::size_t>(length) + state_bytes());
    std::byte* out = bytes.data();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->read_run(layer, values, slot, head, 0, length, out, size);
        out += size * static_cast<std::size_t>(length);
    });
    read_state(slot, out);
    return bytes;
}

void Engine::load_cache(int slot, int length, std::span<const std::byte> bytes) {
    State& s = *state_;
    const std::size_t total = length < 0 ? 0 : row_bytes() * static_cast<std::size_t>(length) + state_bytes();
    if (length < 0 || length > s.options.ctx || bytes.size() != total)
        fail("a saved cache of {} positions should have {} bytes, but it has {}", length, total, bytes.size());
    const std::byte* in = bytes.data();
    s.each_vector([&](int layer, bool values, int head, std::size_t size) {
        s.cache->write_run(layer, values, slot, head, 0, length, in, size);
        in += size * static_cast<std::size_t>(length);
    });
    write_state(slot, in);
}

}  // namespace forge
