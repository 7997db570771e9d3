// The CPU stream runs work in order; a failure fails all work behind it; nothing runs after the stream's end.
#include "evenkeel/device/cpu/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;

using Log = std::vector<std::string>;

class Work : public CpuOperation {
 public:
  Work(Log& log, std::string name, bool fails = false) : log_(log), name_(std::move(name)), fails_(fails) {}

 private:
  void carry_out() override {
    if (fails_) throw std::runtime_error(name_ + " failed");
    log_.push_back(name_);
  }
  void cancel() noexcept override { log_.push_back("no " + name_); }

  Log& log_;
  std::string name_;
  bool fails_;
};

TEST(CpuStream, CarriesOutInOrderUpToTheEventWaitedForAndNoFurther) {
  Log log;
  Work a(log, "a"), b(log, "b"), c(log, "c");
  CpuStream stream;
  const Event first = stream.post(a);
  const Event second = stream.post(b);
  const Event third = stream.post(c);
  EXPECT_TRUE(log.empty());
  second.wait();
  EXPECT_THAT(log, ElementsAre("a", "b"));
  EXPECT_TRUE(first.complete());
  EXPECT_TRUE(second.complete());
  EXPECT_FALSE(third.complete());
  first.wait();
  EXPECT_THAT(log, ElementsAre("a", "b"));
  stream.synchronize();
  EXPECT_THAT(log, ElementsAre("a", "b", "c"));
}

TEST(CpuStream, CancelsWhatStandsBehindAFailureWhichEveryEventOfItThrows) {
  Log log;
  Work a(log, "a"), b(log, "b", true), c(log, "c");
  CpuStream stream;
  const Event first = stream.post(a);
  stream.post(b);
  const Event third = stream.post(c);
  EXPECT_THROW(third.wait(), std::runtime_error);
  EXPECT_THAT(log, ElementsAre("a", "no b", "no c"));
  EXPECT_NO_THROW(first.wait());
  EXPECT_THROW(third.wait(), std::runtime_error);
  EXPECT_FALSE(third.complete());
}

TEST(CpuStream, TakesNewWorkAfterAFailure) {
  Log log;
  Work a(log, "a", true), b(log, "b");
  CpuStream stream;
  stream.post(a);
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  const Event later = stream.post(b);
  EXPECT_NO_THROW(later.wait());
  EXPECT_THAT(log, ElementsAre("no a", "b"));
}

TEST(CpuStream, CancelsWhatIsLeftWhenItEnds) {
  Log log;
  Work a(log, "a");
  {
    CpuStream stream;
    stream.post(a);
  }
  EXPECT_THAT(log, ElementsAre("no a"));
  CpuStream another;
  another.post(a).wait();
  EXPECT_THAT(log, ElementsAre("no a", "a"));
}

TEST(CpuStream, RefusesToWaitForAnOperationWhoseOwnerEnded) {
  Log log;
  CpuStream stream;
  Event event;
  {
    Work a(log, "a");
    event = stream.post(a);
  }
  EXPECT_THROW(event.wait(), InvalidArgument);
}

TEST(CpuStream, KeepsTheOrderOfMoreWorkThanItHadSpaceFor) {
  Log log, expected;
  std::vector<std::unique_ptr<Work>> works;
  CpuStream stream;
  for (int i = 0; i < 100; ++i) {
    works.push_back(std::make_unique<Work>(log, std::to_string(i)));
    expected.push_back(std::to_string(i));
    const Event event = stream.post(*works.back());
    if (i == 10) event.wait();
  }
  stream.synchronize();
  EXPECT_EQ(log, expected);
}

TEST(Event, ThatNobodyMadeIsComplete) {
  EXPECT_TRUE(Event().complete());
  Event().wait();
}

}  // namespace
}  // namespace evenkeel
