#include "serve/kept/job_thread.h"

#include <gtest/gtest.h>

#include <vector>

namespace moeflux::serve {
namespace {

TEST(JobThread, DoesJobsInTheirOrderAndAllOfThem) {
  std::vector<int> done;
  {
    JobThread jobs;
    for (int i = 0; i < 50; ++i) jobs.add([&, i] { done.push_back(i); });
    jobs.wait();
    ASSERT_EQ(done.size(), 50u);
    for (int i = 50; i < 100; ++i) jobs.add([&, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace moeflux::serve
