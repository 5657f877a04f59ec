// Sets of stacks, and how a byte changes them.
//
// While a text is read, several ways of reading it are open at once, each a stack of places to return to.
// A set of stacks is kept as a trie from the top down: frames with different places, each with the set
// of stacks below it. Equal sets have one number, so that shared parts cost nothing and what was
// computed for a set (its successors, its mask) is computed once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace forge::grammar {

using SetId = std::uint32_t;

// A place: a node, or inside a string (`edge` is its edge, `aux` its state and characters so far).
struct Frame {
    std::uint32_t place;   // node, or text_bit | edge
    std::uint32_t aux;     // state | characters << 8
    SetId below;
    static constexpr std::uint32_t text_bit = 0x80000000;
    bool is_text() const { return place & text_bit; }
    std::uint32_t edge() const { return place & ~text_bit; }
    std::uint8_t state() const { return static_cast<std::uint8_t>(aux & 0xFF); }
    std::uint32_t characters() const { return aux >> 8; }
    bool operator==(const Frame&) const = default;
};

// Their order in a set.
inline bool before(const Frame& a, const Frame& b) { return a.place != b.place ? a.place < b.place : a.aux < b.aux; }

struct StackSet {
    bool has_empty = false;     // the empty stack is one of them: the text may end here
    std::vector<Frame> frames;  // by place and aux, no two alike
};

class Stacks {
  public:
    explicit Stacks(std::shared_ptr<const Grammar> grammar);

    static constexpr SetId none = 0;   // no stack at all: the text does not belong to the language
    SetId start() const { return start_; }
    SetId step(SetId set, unsigned char byte);
    SetId step(SetId set, std::string_view bytes);
    const StackSet& operator[](SetId set) const { return sets_[set]; }
    // The set after the byte that closes a text frame.
    SetId after_text(const Frame& frame);
    // Of these frames alone (a part of a closed set).
    SetId subset(std::vector<Frame> frames, bool has_empty) { return intern({has_empty, std::move(frames)}); }
    // A set that reads the same texts of at most `agrees` bytes, one for many counts of characters; the set itself where
    // the grammar knows of none that agrees on texts of `least` bytes (1 or more).
    struct Alike { SetId set; std::uint32_t agrees; };
    Alike alike(SetId set, std::uint32_t least) { return alike(set, least, 0); }
    // The only byte that can come next; -1 when there are several or the text may end here.
    int only_byte(SetId set) const;

    // When what was remembered has grown large: forgets everything but `keep`, which gets a new number.
    bool full() const { return sets_.size() > limit_; }
    SetId forget_all_but(SetId keep);

    const Grammar& grammar() const { return *grammar_; }

  private:
    static constexpr std::size_t usual_sets = 60'000, most_sets = 400'000;
    struct Hash { std::size_t operator()(const StackSet* s) const; };
    struct Equal { bool operator()(const StackSet* a, const StackSet* b) const; };
    // Frames being closed, by place and aux.
    struct Closing;

    SetId intern(StackSet set);
    SetId unite(SetId a, SetId b);
    Alike alike(SetId set, std::uint32_t least, std::uint32_t depth);
    SetId copy_from(const std::vector<StackSet>& old, SetId set, std::unordered_map<SetId, SetId>& done);
    void begin();
    void add(std::uint32_t place, std::uint32_t aux, SetId below);
    SetId close();

    std::shared_ptr<const Grammar> grammar_;
    std::vector<StackSet> sets_;
    std::unordered_map<std::uint64_t, std::vector<SetId>> index_;   // by hash
    std::unordered_map<std::uint64_t, SetId> united_;
    std::unordered_map<std::uint64_t, Alike> alike_;                // by least and set
    std::vector<std::unique_ptr<SetId[]>> next_;                    // 256 a set, unknown = 0xFFFFFFFF
    SetId start_ = 0;
    std::size_t limit_ = usual_sets;   // grows with what must be kept, so that forgetting pays

    // Scratch of one closure.
    struct Entry { std::uint32_t place, aux; SetId below; bool waiting; };
    std::vector<Entry> entries_;
    std::unordered_map<std::uint64_t, std::uint32_t> entry_index_;
    std::vector<std::uint32_t> work_;
    bool closing_empty_ = false;
};

}  // namespace forge::grammar
