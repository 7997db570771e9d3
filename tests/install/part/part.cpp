// Links two components of an installed evenkeel.
#include <evenkeel/plan/counts.h>

int main() {
  return evenkeel::Counts(1, 1).num_ranks() == 1 ? 0 : 1;
}
