#include "metal_emu/touched.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/shadow.h"

namespace metal_emu {

// A bit a byte; workers set them at the same time.
struct TouchedPage {
    static constexpr std::size_t kBytes = 4096;
    using Bits = std::array<std::atomic<std::uint64_t>, kBytes / 64>;
    Bits read{}, written{};
};

namespace {

std::unordered_map<std::uintptr_t, std::unique_ptr<TouchedPage>> g_touched;
std::mutex g_touched_mutex;
std::atomic<bool> g_counting{false};
// Workers keep the page they used last, of this counting.
std::atomic<std::uint64_t> g_counting_number{0};

TouchedPage& page_of(Worker& w, std::uintptr_t key) {
    const std::uint64_t number = g_counting_number.load(std::memory_order_relaxed);
    if (!w.touched_page || w.touched_key != key || w.touched_number != number) {
        std::lock_guard lock(g_touched_mutex);
        auto& page = g_touched[key];
        if (!page) page = std::make_unique<TouchedPage>();
        w.touched_page = page.get();
        w.touched_key = key;
        w.touched_number = number;
    }
    return *w.touched_page;
}

// Of [first, last) of a page.
std::uint64_t count(const TouchedPage::Bits& bits, std::size_t first, std::size_t last) {
    std::uint64_t sum = 0;
    for (std::size_t i = first; i < last; i++) sum += bits[i / 64].load(std::memory_order_relaxed) >> (i % 64) & 1;
    return sum;
}

}  // namespace

bool counting_touched() { return g_counting.load(std::memory_order_relaxed); }

void mark_touched(Worker& w, std::uintptr_t address, const Touch& t) {
    for (unsigned k = 0; k < t.bytes;) {
        const std::uintptr_t a = address + k, key = a / TouchedPage::kBytes;
        const std::size_t at = a % TouchedPage::kBytes;
        const auto n = static_cast<unsigned>(std::min<std::size_t>({t.bytes - k, 64 - at % 64, TouchedPage::kBytes - at}));
        TouchedPage& page = page_of(w, key);
        const std::uint64_t mask = (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << (at % 64);
        if (!t.write || t.atomic) page.read[at / 64].fetch_or(mask, std::memory_order_relaxed);
        if (t.write) page.written[at / 64].fetch_or(mask, std::memory_order_relaxed);
        k += n;
    }
}

void count_touched(bool on) {
    std::lock_guard lock(g_touched_mutex);
    if (on) {
        g_touched.clear();
        g_counting_number++;
    }
    g_counting = on;
}

TouchedBytes touched(const void* memory, std::size_t bytes) {
    TouchedBytes sum;
    const auto low = reinterpret_cast<std::uintptr_t>(memory), high = low + bytes;
    std::lock_guard lock(g_touched_mutex);
    for (const auto& [key, page] : g_touched) {
        const std::uintptr_t start = key * TouchedPage::kBytes, end = start + TouchedPage::kBytes;
        if (end <= low || start >= high) continue;
        const std::size_t first = low > start ? low - start : 0, last = (high < end ? high : end) - start;
        sum.read += count(page->read, first, last);
        sum.written += count(page->written, first, last);
    }
    return sum;
}

}  // namespace metal_emu
