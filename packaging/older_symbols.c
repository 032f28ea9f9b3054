/* older_symbols.c - what our compiler's C++ library has in a newer version than systems of glibc
 * 2.34 have: calls go to the version that both know. packaging/relink.py links it into the wheel's
 * libraries with --wrap. std::condition_variable::wait got a version of its own for ending a
 * cancelled thread differently; ours are never cancelled. */
void mori_older_wait(void* condition, void* lock);
__asm__(
    ".symver mori_older_wait,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock);

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  mori_older_wait(condition, lock);
}
