#include "schemes/thread_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "ranks.h"

namespace zen {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr Tag kTag{.layout = 7, .sequence = 3, .phase = 1, .chunk = 2};

Buffer bytes_of(const std::string& text) {
  auto owner = std::make_shared<std::string>(text);
  return {reinterpret_cast<std::byte*>(owner->data()), owner->size(), owner};
}

std::string text_of(const Buffer& buffer, size_t length) {
  return {reinterpret_cast<const char*>(buffer.data), length};
}

ThreadOptions short_timeout(Traits traits) {
  return {.traits = traits, .timeout = 50ms};
}

class ThreadTransportTest : public ::testing::TestWithParam<bool> {
 protected:
  static Traits traits() { return GetParam() ? kNcclTraits : kGlooTraits; }

  scheme_test::Outcome run(const std::function<void(Transport&)>& body) {
    return scheme_test::run_ranks(*group, [&](int rank) { body(group->transport(rank)); });
  }
  void run_well(const std::function<void(Transport&)>& body) {
    ASSERT_NO_THROW(run(body).rethrow());
  }
  void use(int size, const ThreadOptions& options) {
    group = std::make_unique<ThreadGroup>(size, options);
  }

  std::unique_ptr<ThreadGroup> group =
      std::make_unique<ThreadGroup>(3, ThreadOptions{.traits = traits()});
};

// Everybody sends its rank to everybody under `tag`; returns what came, in the order of the peers.
std::vector<Buffer> gossip(Transport& t, const Tag& tag, size_t capacity = 64) {
  std::vector<Expected> from;
  std::vector<Outgoing> to;
  for (int peer = 0; peer < t.size(); ++peer) {
    if (peer == t.rank()) continue;
    from.push_back({peer, capacity});
    to.push_back({peer, bytes_of("from " + std::to_string(t.rank()))});
  }
  const Ticket ticket = t.expect(tag, from);
  t.send(ticket, to);
  return t.wait(ticket);
}

TEST_P(ThreadTransportTest, delivers_messages_in_the_order_of_expect) {
  run_well([](Transport& t) {
    const int next = (t.rank() + 1) % 3, last = (t.rank() + 2) % 3;
    const std::vector<Expected> from{{last, 64}, {next, 64}};
    const Ticket ticket = t.expect(kTag, from);
    const std::string me = std::to_string(t.rank());
    t.send(ticket, std::vector<Outgoing>{{next, bytes_of("a" + me)}, {last, bytes_of("b" + me)}});
    const auto received = t.wait(ticket);
    ASSERT_EQ(received.size(), 2u);
    EXPECT_EQ(text_of(received[0], 2), "a" + std::to_string(last));
    EXPECT_EQ(text_of(received[1], 2), "b" + std::to_string(next));
  });
}

TEST_P(ThreadTransportTest, buffer_length_is_the_capacity_unless_sizes_are_exact) {
  run_well([](Transport& t) {
    for (const Buffer& received : gossip(t, kTag, 40)) {
      EXPECT_EQ(received.bytes, GetParam() ? 6u : 40u);
      if (!GetParam()) {
        EXPECT_EQ(received.data[39], std::byte{0xa5});
      }
    }
  });
}

TEST_P(ThreadTransportTest,
       message_as_long_as_the_capacity_fits_and_a_longer_one_kills_both_sides) {
  run_well([](Transport& t) { gossip(t, kTag, 6); });
  const auto outcome = run([](Transport& t) { gossip(t, kTag, 5); });
  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("6 bytes"), HasSubstr("room for 5"))));
}

TEST_P(ThreadTransportTest, messages_with_one_tag_stay_in_order) {
  run_well([](Transport& t) {
    std::vector<Ticket> tickets;
    const int next = (t.rank() + 1) % 3, last = (t.rank() + 2) % 3;
    for (int i = 0; i < 4; ++i) {
      tickets.push_back(t.expect(kTag, std::vector<Expected>{{last, 64}}));
      t.send(tickets.back(), std::vector<Outgoing>{{next, bytes_of(std::to_string(i))}});
    }
    for (int i = 0; i < 4; ++i) EXPECT_EQ(text_of(t.wait(tickets[i])[0], 1), std::to_string(i));
  });
}

TEST_P(ThreadTransportTest, tickets_may_be_waited_for_in_any_order_under_random_delays) {
  use(3, {.traits = traits(), .max_delay = 2ms, .seed = 42});
  run_well([](Transport& t) {
    const int next = (t.rank() + 1) % 3, last = (t.rank() + 2) % 3;
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 8; ++i) {
      const Tag tag{.layout = 0, .sequence = i};
      tickets.push_back(t.expect(tag, std::vector<Expected>{{last, 64}}));
      t.send(tickets.back(), std::vector<Outgoing>{{next, bytes_of(std::to_string(i))}});
    }
    for (int i = 7; i >= 0; --i) EXPECT_EQ(text_of(t.wait(tickets[i])[0], 1), std::to_string(i));
  });
}

TEST_P(ThreadTransportTest, other_tag_is_never_delivered) {
  const Tag others[] = {{8, 3, 1, 2}, {7, 4, 1, 2}, {7, 3, 2, 2}, {7, 3, 1, 3}};
  for (const Tag& other : others) {
    use(2, short_timeout(traits()));
    const auto outcome = run([&](Transport& t) { gossip(t, t.rank() == 0 ? kTag : other); });
    EXPECT_THAT(outcome.errors, Each(Not(IsEmpty())));
  }
}

TEST_P(ThreadTransportTest, late_peer_is_named_and_ends_the_wait_of_all) {
  use(3, short_timeout(traits()));
  const auto outcome = run([](Transport& t) {
    if (t.rank() != 2) gossip(t, kTag);
  });
  EXPECT_THAT(outcome.errors[0], AllOf(HasSubstr("waited 50 ms"), HasSubstr("rank 2")));
  EXPECT_THAT(outcome.errors[1], AllOf(HasSubstr("waited 50 ms"), HasSubstr("rank 2")));
}

TEST_P(ThreadTransportTest, fail_wakes_every_peer_and_names_the_dead_rank) {
  const auto outcome = run([](Transport& t) {
    if (t.rank() == 1) return t.fail();
    gossip(t, kTag);
  });
  EXPECT_THAT(outcome.errors[0], HasSubstr("rank 1 of 3 failed"));
  EXPECT_THAT(outcome.errors[2], HasSubstr("rank 1 of 3 failed"));
  EXPECT_THROW(group->transport(1).expect(kTag, {}), TransportError);
}

TEST_P(ThreadTransportTest, what_arrived_before_a_failure_can_still_be_taken) {
  run_well([](Transport& t) {
    const int next = (t.rank() + 1) % 3, last = (t.rank() + 2) % 3;
    const Ticket ticket = t.expect(kTag, std::vector<Expected>{{last, 64}});
    t.send(ticket, std::vector<Outgoing>{{next, bytes_of("x")}});
    t.agree(0, "");
    if (t.rank() == 0) t.fail();
    EXPECT_EQ(text_of(t.wait(ticket)[0], 1), "x");
  });
}

TEST_P(ThreadTransportTest, injected_fault_hits_exactly_the_given_call) {
  for (uint64_t call = 0; call < 3; ++call) {
    use(3, {.traits = traits()});
    group->inject_fault(1, call);
    const auto outcome = run([](Transport& t) { gossip(t, kTag); });
    EXPECT_THAT(outcome.errors[1], HasSubstr("on purpose at its call " + std::to_string(call)));
    EXPECT_EQ(group->calls(1), call + 1);
  }
  use(3, {.traits = traits()});
  group->inject_fault(1, 3);
  run_well([](Transport& t) { gossip(t, kTag); });
}

TEST_P(ThreadTransportTest, traffic_counts_message_bytes_and_the_ring_of_all_reduce) {
  run_well([](Transport& t) {
    gossip(t, kTag, 100);
    EXPECT_EQ(t.traffic().bytes_out, 12u);
    EXPECT_EQ(t.traffic().bytes_in, 12u);
    std::vector<float> data(30);
    t.all_reduce({reinterpret_cast<std::byte*>(data.data()), 120, nullptr}, DType::f32,
                 Reduce::sum);
    EXPECT_EQ(t.traffic().bytes_out, 12u + 160u);
  });
}

TEST_P(ThreadTransportTest, all_reduce_adds_in_rank_order_and_rounds_once) {
  run_well([](Transport& t) {
    // 2^24 + 1 - 2^24: the one is lost in this order, but not from right to left.
    float sum = std::vector<float>{16777216, 1, -16777216}[t.rank()];
    t.all_reduce({reinterpret_cast<std::byte*>(&sum), 4, nullptr}, DType::f32, Reduce::sum);
    EXPECT_EQ(sum, 0);
    // 256 + 1 + 1 = 258 is a bfloat16, 257 is not.
    bf16 half = from_float<bf16>(t.rank() == 0 ? 256 : 1);
    t.all_reduce({reinterpret_cast<std::byte*>(&half), 2, nullptr}, DType::bf16, Reduce::sum);
    EXPECT_EQ(to_float(half), 258);
    float mean = static_cast<float>(t.rank() * 3);
    t.all_reduce({reinterpret_cast<std::byte*>(&mean), 4, nullptr}, DType::f32, Reduce::mean);
    EXPECT_EQ(mean, 3);
  });
}

TEST_P(ThreadTransportTest, all_reduce_of_different_sizes_kills_the_group) {
  const auto outcome = run([](Transport& t) {
    std::vector<float> data(t.rank() == 2 ? 3 : 4);
    const Buffer view{reinterpret_cast<std::byte*>(data.data()), data.size() * 4, nullptr};
    t.all_reduce(view, DType::f32, Reduce::sum);
  });
  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("12 bytes"), HasSubstr("16 bytes"))));
}

TEST_P(ThreadTransportTest, agree_lists_every_rank_when_one_differs) {
  run_well([](Transport& t) { t.agree(5, "the same"); });
  const auto outcome = run(
      [](Transport& t) { t.agree(t.rank() == 1 ? 6 : 5, t.rank() == 1 ? "float16" : "float32"); });
  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("rank 0: float32"), HasSubstr("rank 1: float16"),
                                         HasSubstr("rank 2: float32"))));
}

TEST_P(ThreadTransportTest, misuse_is_refused) {
  Transport& t = group->transport(0);
  EXPECT_THROW(t.expect(kTag, std::vector<Expected>{{0, 1}}), InvalidArgument);
  EXPECT_THROW(t.expect(kTag, std::vector<Expected>{{3, 1}}), InvalidArgument);
  EXPECT_THROW(t.expect(kTag, std::vector<Expected>{{1, 1}, {1, 1}}), InvalidArgument);
  EXPECT_THROW(t.send(99, {}), InvalidArgument);
  EXPECT_THROW(ThreadGroup(0), InvalidArgument);
  const Ticket ticket = t.expect(kTag, {});
  EXPECT_THROW(t.wait(ticket), InvalidArgument);
  EXPECT_THROW(t.send(ticket, std::vector<Outgoing>{{1, Buffer{}}}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Traits, ThreadTransportTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Ordered" : "Unordered"; });

TEST(OrderedThreadTransport, different_calls_kill_the_group) {
  ThreadGroup group(2, {.traits = kNcclTraits});
  const auto outcome = scheme_test::run_ranks(group, [&](int rank) {
    Transport& t = group.transport(rank);
    const Tag other{.layout = 7, .sequence = 3, .phase = 2, .chunk = 2};
    t.expect(rank == 0 ? kTag : other, {});
    t.expect(rank == 0 ? other : kTag, {});
    t.agree(0, "");
  });
  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("phase 1"), HasSubstr("phase 2"))));
}

TEST(OrderedThreadTransport, unexpected_message_kills_the_group) {
  ThreadGroup group(2, {.traits = kNcclTraits});
  const auto outcome = scheme_test::run_ranks(group, [&](int rank) {
    Transport& t = group.transport(rank);
    const Ticket ticket = t.expect(kTag, {});
    std::vector<Outgoing> messages;
    if (rank == 0) messages.push_back({1, bytes_of("surprise")});
    t.send(ticket, messages);
    t.agree(0, "");
  });
  EXPECT_THAT(outcome.errors, Each(HasSubstr("disagree whether a message travels")));
}

TEST(UnorderedThreadTransport, own_message_is_done_only_when_the_peer_expects_it) {
  ThreadGroup group(2, short_timeout(kGlooTraits));
  const auto outcome = scheme_test::run_ranks(group, [&](int rank) {
    if (rank == 1) return;
    Transport& t = group.transport(rank);
    const Ticket ticket = t.expect(kTag, {});
    t.send(ticket, std::vector<Outgoing>{{1, bytes_of("anyone?")}});
    t.wait(ticket);
  });
  EXPECT_THAT(outcome.errors[0], HasSubstr("rank 1"));
}

}  // namespace
}  // namespace zen
