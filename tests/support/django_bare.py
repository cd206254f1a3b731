"""Settings of Django without a database, for tests that only import."""

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["interlock.contrib.django"]
INTERLOCK = {"default": {"charts": ["tests.support.django_bare.none"]}}
